// Stacks that lockstep-stacks printed, with names of a user's files; and the
// texts of /proc that evidence is made of.
#include <set>

#include "common/os/tcp_sockets.h"
#include "tests/fuzz/fuzz.h"
#include "worker/evidence/proc_parts.h"
#include "worker/evidence/stacks.h"

LOCKSTEP_FUZZ_TARGET(native_stacks)(const uint8_t* data, size_t size) {
  using namespace lockstep;
  using namespace lockstep::worker::evidence;
  const std::string_view text = fuzz::View(data, size);
  if (auto threads = ParseNativeStacks(text); threads.ok()) {
    ProcessEvidence process;
    process.threads.resize(3);
    MergeStacks(*std::move(threads), &process);
    fuzz::Require(process.threads.size() <= kMaxEvidenceThreads,
                  "threads are bounded");
    for (const ThreadEvidence& thread : process.threads) {
      fuzz::Require(thread.frames.size() <= kMaxEvidenceFrames,
                    "frames are bounded");
    }
  }
  fuzz::Require(KernelStackOf(text).size() <= kMaxEvidenceText,
                "a kernel's stack is bounded");
  fuzz::Require(SystemCallOf(text).size() <= kMaxEvidenceName,
                "a system call is bounded");
  (void)SocketInode(text);
  fuzz::Require(
      ParseSockets(text, "tcp", {0, 1, 4711}).size() <= kMaxEvidenceSockets,
      "sockets are bounded");
  const ProcessStatus status = ParseProcessStatus(text);
  fuzz::Require(status.resident_bytes >= 0 && status.swap_bytes >= 0,
                "sizes are sizes");
  std::map<std::string, double> readings;
  AddPressure(text, "cpu", &readings);
  AddNumbers(text, "x", {"a", "b"}, &readings);
  AddNumber(text, "y", &readings);
  fuzz::Require(readings.size() <= 5, "only known names");
  return 0;
}
