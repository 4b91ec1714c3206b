#include "tests/fuzz/fuzz.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "common/base/crc32c.h"
#include "common/base/status.h"

namespace lockstep::fuzz {
namespace {

// Magic and version, then the length of the payload.
constexpr size_t kLengthAt = 12;
constexpr size_t kPayloadAt = 16;

void PutLittleEndian(uint32_t value, char* out) {
  for (int i = 0; i < 4; ++i) out[i] = static_cast<char>(value >> (8 * i));
}

}  // namespace

std::map<std::string, Target>& Targets() {
  static std::map<std::string, Target> targets;
  return targets;
}

void Require(bool holds, const char* what) {
  if (holds) return;
  fprintf(stderr, "fuzz: this does not hold: %s\n", what);
  std::abort();
}

uint8_t TakeChoice(std::string_view* bytes) {
  if (bytes->empty()) return 0;
  const auto choice = static_cast<uint8_t>(bytes->front());
  bytes->remove_prefix(1);
  return choice;
}

MemoryFile::MemoryFile(std::string_view bytes)
    : fd_(::memfd_create("fuzz", MFD_CLOEXEC)),
      path_("/proc/self/fd/" + std::to_string(fd_)) {
  Require(fd_ >= 0, "memfd_create works");
  Require(::write(fd_, bytes.data(), bytes.size()) ==
              static_cast<ssize_t>(bytes.size()),
          "a memory file takes the bytes");
}

MemoryFile::~MemoryFile() { ::close(fd_); }

std::string FixEnvelope(std::string_view bytes) {
  std::string fixed(bytes);
  if (fixed.size() < kPayloadAt + 4) return fixed;
  PutLittleEndian(static_cast<uint32_t>(fixed.size() - kPayloadAt - 4),
                  fixed.data() + kLengthAt);
  const size_t crc_at = fixed.size() - 4;
  PutLittleEndian(Crc32c(std::string_view(fixed).substr(0, crc_at)),
                  fixed.data() + crc_at);
  return fixed;
}

std::string SealText(std::string_view text) {
  return fmt::format("{}crc32c {:08x}\n", text, Crc32c(text));
}

}  // namespace lockstep::fuzz
