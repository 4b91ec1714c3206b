// Runs fuzz targets without libFuzzer:
//
//   fuzz_targets TARGET CORPUS [MUTATIONS]
//
// every file of the directory CORPUS, and of each that many mutations, the
// same in every run. Fails where the directory holds nothing: a target whose
// inputs were lost tests nothing.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

#include "tests/fuzz/fuzz.h"

namespace {

using Bytes = std::vector<uint8_t>;

void Try(lockstep::fuzz::Target target, const Bytes& bytes) {
  // A copy of exactly this size, so that a read past its end is seen.
  const Bytes exact(bytes);
  target(exact.data(), exact.size());
}

void Mutate(std::mt19937_64* random, Bytes* bytes) {
  const auto draw = [&](size_t below) {
    return static_cast<size_t>((*random)() % std::max<size_t>(below, 1));
  };
  for (size_t changes = 1 + draw(4); changes > 0; --changes) {
    if (bytes->empty()) bytes->push_back(0);
    const size_t at = draw(bytes->size());
    static constexpr uint8_t kTelling[] = {0, 1, 0x7f, 0x80, 0xff, '\n', '-'};
    switch (draw(6)) {
      case 0:
        (*bytes)[at] ^= static_cast<uint8_t>(1u << draw(8));
        break;
      case 1:
        (*bytes)[at] = kTelling[draw(sizeof(kTelling))];
        break;
      case 2:
        bytes->resize(at);
        break;
      case 3: {
        const size_t length = std::min(draw(64), bytes->size() - at);
        bytes->erase(bytes->begin() + static_cast<ptrdiff_t>(at),
                     bytes->begin() + static_cast<ptrdiff_t>(at + length));
        break;
      }
      case 4: {
        const Bytes piece(bytes->begin() + static_cast<ptrdiff_t>(at),
                          bytes->begin() + static_cast<ptrdiff_t>(std::min(
                                               bytes->size(), at + draw(64))));
        bytes->insert(bytes->begin() + static_cast<ptrdiff_t>(draw(at)),
                      piece.begin(), piece.end());
        break;
      }
      default:
        bytes->insert(bytes->begin() + static_cast<ptrdiff_t>(at),
                      static_cast<uint8_t>((*random)()));
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  const auto& targets = lockstep::fuzz::Targets();
  const auto target = targets.find(argc > 1 ? argv[1] : "");
  if (argc < 3 || target == targets.end()) {
    fprintf(stderr, "usage: %s TARGET CORPUS [MUTATIONS]\n", argv[0]);
    return 2;
  }
  const int mutations = argc > 3 ? std::atoi(argv[3]) : 0;
  std::vector<std::filesystem::path> files;
  std::error_code error;
  for (const auto& entry :
       std::filesystem::directory_iterator(argv[2], error)) {
    files.push_back(entry.path());
  }
  if (files.empty()) {
    fprintf(stderr, "%s: no inputs in %s\n", argv[1], argv[2]);
    return 1;
  }
  std::sort(files.begin(), files.end());
  for (const auto& file : files) {
    // Said before, so that the input that ends the program is known.
    printf("%s\n", file.c_str());
    fflush(stdout);
    std::ifstream stream(file, std::ios::binary);
    const Bytes bytes{std::istreambuf_iterator<char>(stream), {}};
    Try(target->second, bytes);
    std::mt19937_64 random(bytes.size());
    for (int i = 0; i < mutations; ++i) {
      Bytes changed = bytes;
      Mutate(&random, &changed);
      Try(target->second, changed);
    }
  }
  Try(target->second, {});
  printf("%zu inputs, %d mutations each\n", files.size(), mutations);
  return 0;
}
