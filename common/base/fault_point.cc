#include "common/base/fault_point.h"

#include <unistd.h>

#include <atomic>
#include <charconv>
#include <map>

#include "common/base/mutex.h"

namespace lockstep {
namespace {

struct Fault {
  bool crash = false;
  // The fault repeats from then on.
  bool stays = false;
  int at = 0;
  int passed = 0;
};

struct Faults {
  Mutex mu;
  std::map<std::string, Fault> by_name ABSL_GUARDED_BY(mu);
};

std::atomic<bool> enabled{false};

Faults* TheFaults() {
  static Faults* const faults = new Faults;
  return faults;
}

}  // namespace

Status EnableFaults(const std::string& spec) {
  std::map<std::string, Fault> parsed;
  for (size_t begin = 0; begin < spec.size();) {
    size_t end = spec.find(',', begin);
    if (end == std::string::npos) end = spec.size();
    const std::string part = spec.substr(begin, end - begin);
    begin = end + 1;
    const size_t equals = part.find('=');
    const size_t at = part.find('@', equals == std::string::npos ? 0 : equals);
    Fault fault;
    fault.stays = part.ends_with('+');
    const char* last = part.data() + part.size() - (fault.stays ? 1 : 0);
    const std::string kind =
        equals == std::string::npos || at == std::string::npos
            ? ""
            : part.substr(equals + 1, at - equals - 1);
    if ((kind != "crash" && kind != "error") ||
        std::from_chars(part.data() + at + 1, last, fault.at).ptr != last ||
        fault.at < 1) {
      return InvalidArgument(
          "fault '{}': write name=crash@N, name=error@N or name=error@N+ with "
          "N "
          ">= 1",
          part);
    }
    fault.crash = kind == "crash";
    parsed[part.substr(0, equals)] = fault;
  }
  Faults* faults = TheFaults();
  MutexLock lock(&faults->mu);
  faults->by_name = std::move(parsed);
  enabled.store(!faults->by_name.empty());
  return OkStatus();
}

Status FaultPoint(const char* name) {
  if (!enabled.load(std::memory_order_relaxed)) return OkStatus();
  Faults* faults = TheFaults();
  MutexLock lock(&faults->mu);
  auto it = faults->by_name.find(name);
  if (it == faults->by_name.end()) return OkStatus();
  Fault& fault = it->second;
  ++fault.passed;
  if (fault.stays ? fault.passed < fault.at : fault.passed != fault.at) {
    return OkStatus();
  }
  if (fault.crash) ::_exit(kFaultExitCode);
  return Internal("fault point {}", name);
}

}  // namespace lockstep
