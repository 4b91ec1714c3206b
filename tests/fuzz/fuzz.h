// What every fuzz target shares.
//
// A target is one file with LOCKSTEP_FUZZ_TARGET: it hands bytes from outside
// to one parser, and checks what must hold of whatever the parser accepts. With
// clang's preset "fuzz" each is a program with libFuzzer; in all other builds
// they are one program with driver.cc, which runs the kept inputs
// (corpus/TARGET/) and some mutations of each as a test.
#ifndef LOCKSTEP_TESTS_FUZZ_FUZZ_H_
#define LOCKSTEP_TESTS_FUZZ_FUZZ_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>

namespace lockstep::fuzz {

using Target = int (*)(const uint8_t* data, size_t size);

// The targets of this program, by name: each adds itself before main.
std::map<std::string, Target>& Targets();
struct AddTarget {
  AddTarget(const char* name, Target target) { Targets()[name] = target; }
};

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

// LOCKSTEP_FUZZ_TARGET(wire)(const uint8_t* data, size_t size) { ... }, in the
// file wire.cc.
#ifdef LOCKSTEP_LIBFUZZER
#define LOCKSTEP_FUZZ_TARGET(name) extern "C" int LLVMFuzzerTestOneInput
#else
#define LOCKSTEP_FUZZ_TARGET(name)                                        \
  static int Fuzz_##name(const uint8_t* data, size_t size);               \
  static const lockstep::fuzz::AddTarget add_##name(#name, &Fuzz_##name); \
  static int Fuzz_##name
#endif

#endif  // LOCKSTEP_TESTS_FUZZ_FUZZ_H_
