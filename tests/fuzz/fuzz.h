// What every fuzz target shares.
//
// A target is one file that defines LLVMFuzzerTestOneInput: it hands bytes
// from outside to one parser, and checks what must hold of whatever the parser
// accepts. With clang's preset "fuzz" it is linked with libFuzzer; in all
// other builds with driver.cc, which runs the kept inputs (corpus/TARGET/) and
// some mutations of each as a test.
#ifndef LOCKSTEP_TESTS_FUZZ_FUZZ_H_
#define LOCKSTEP_TESTS_FUZZ_FUZZ_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace lockstep::fuzz {

inline std::string_view View(const uint8_t* data, size_t size) {
  return {reinterpret_cast<const char*>(data), size};
}

// Ends the program with `what` unless `holds`, in every build.
void Require(bool holds, const char* what);

// Takes the first byte off `bytes`: which way to go. 0 where there is none.
uint8_t TakeChoice(std::string_view* bytes);

// Bytes as a file that can be opened by path, in memory.
class MemoryFile {
 public:
  explicit MemoryFile(std::string_view bytes);
  ~MemoryFile();
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;
  const std::string& path() const { return path_; }

 private:
  int fd_;
  std::string path_;
};

// Bytes of the envelope of worker/task/bytes.h with its length and CRC put
// right, so that a mutation gets past them.
std::string FixEnvelope(std::string_view bytes);
// The same for text that ends with the CRC line of
// worker/checkpoint/sealed_json.h: `text` without that line.
std::string SealText(std::string_view text);

}  // namespace lockstep::fuzz

#endif  // LOCKSTEP_TESTS_FUZZ_FUZZ_H_
