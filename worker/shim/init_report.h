// Reports of a container's init (init.h) to the shim outside: fixed records on
// a pipe, each in one write of at most PIPE_BUF, in the host's byte order.
#ifndef LOCKSTEP_WORKER_SHIM_INIT_REPORT_H_
#define LOCKSTEP_WORKER_SHIM_INIT_REPORT_H_

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string_view>
#include <type_traits>

namespace lockstep::worker::shim {

// Descriptor of the pipe in the container.
inline constexpr int kInitReportFd = 3;

struct InitReport {
  enum class Kind : uint32_t {
    kStarted = 1,  // The program runs.
    // `value`: errno of its exec; ESTALE: a mount has been replaced.
    kNotStarted = 2,
    kEnded = 3,  // `value`: its wait status.
  };
  static constexpr uint32_t kMagic = 0x4e49534c;  // "LSIN".

  uint32_t magic = kMagic;
  Kind kind = Kind::kStarted;
  int32_t value = 0;
  // Processes of the container that the OOM killer killed.
  uint32_t oom_kills = 0;
  // kNotStarted: the program, or the mount's path, truncated.
  char program[112] = {};

  void SetProgram(std::string_view name) {
    memcpy(program, name.data(), std::min(name.size(), sizeof(program) - 1));
  }
  // The report comes from the container and is untrusted.
  bool Valid() const {
    return magic == kMagic && kind >= Kind::kStarted && kind <= Kind::kEnded &&
           program[sizeof(program) - 1] == '\0';
  }
};
static_assert(sizeof(InitReport) == 128);
static_assert(std::is_trivially_copyable_v<InitReport>);

}  // namespace lockstep::worker::shim

#endif  // LOCKSTEP_WORKER_SHIM_INIT_REPORT_H_
