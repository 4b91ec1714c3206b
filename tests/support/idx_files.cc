#include "tests/support/idx_files.h"

#include <random>

namespace lockstep {

std::string BigEndian(uint32_t value) {
  return {static_cast<char>(value >> 24), static_cast<char>(value >> 16),
          static_cast<char>(value >> 8), static_cast<char>(value)};
}

IdxFiles BrightQuarters(int count) {
  constexpr int kSide = 28;
  std::mt19937 random(static_cast<uint32_t>(count));
  IdxFiles files;
  files.images = BigEndian(0x803) + BigEndian(static_cast<uint32_t>(count)) +
                 BigEndian(kSide) + BigEndian(kSide);
  files.labels = BigEndian(0x801) + BigEndian(static_cast<uint32_t>(count));
  for (int i = 0; i < count; ++i) {
    const int label = static_cast<int>(random() % 4);
    files.labels.push_back(static_cast<char>(label));
    for (int y = 0; y < kSide; ++y) {
      for (int x = 0; x < kSide; ++x) {
        const bool bright = (x < kSide / 2) == (label % 2 == 0) &&
                            (y < kSide / 2) == (label / 2 == 0);
        files.images.push_back(
            static_cast<char>(random() % 100 + (bright ? 150 : 0)));
      }
    }
  }
  return files;
}

}  // namespace lockstep
