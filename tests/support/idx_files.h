// Files in MNIST's format (IDX) for tests.
#ifndef LOCKSTEP_TESTS_SUPPORT_IDX_FILES_H_
#define LOCKSTEP_TESTS_SUPPORT_IDX_FILES_H_

#include <cstdint>
#include <string>

namespace lockstep {

// As the format has whole numbers.
std::string BigEndian(uint32_t value);

struct IdxFiles {
  std::string images;
  std::string labels;
};
// `count` grey images of 28 x 28 pixels, of 4 classes: which quarter, or which
// two, is bright. The same for the same count.
IdxFiles BrightQuarters(int count);

}  // namespace lockstep

#endif  // LOCKSTEP_TESTS_SUPPORT_IDX_FILES_H_
