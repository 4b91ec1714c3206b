// What a rank says of its training, and what it uses. Pure values.
#ifndef LOCKSTEP_COMMON_MODEL_RANK_PROGRESS_H_
#define LOCKSTEP_COMMON_MODEL_RANK_PROGRESS_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "common/base/clock.h"

namespace lockstep {

// What shows that a program's rank makes progress, best last.
enum class SignSource {
  kNone = 0,
  kActivity = 1,
  kFiles = 2,
  kLog = 3,
  kSession = 4,
};
// What users read: "session", "log", "files", "activity", "none".
std::string_view Name(SignSource source);

struct PhaseSeconds {
  double input = 0;
  double compute = 0;
  double allreduce = 0;
  double straggler_wait = 0;
  double optimizer = 0;
  double checkpoint = 0;
  double evaluation = 0;
  double other = 0;
  // Building kernels and graphs: torch.compile, XLA.
  double compile = 0;

  double Sum() const {
    return input + compute + allreduce + straggler_wait + optimizer +
           checkpoint + evaluation + other + compile;
  }
  bool operator==(const PhaseSeconds&) const = default;
};

// The rank that delayed the others most in the last steps.
struct Straggler {
  int32_t rank = 0;
  int32_t steps = 0;       // Steps examined, at most 100.
  int32_t late_steps = 0;  // Those in which it arrived last.
  // The share of their time that would be saved if it arrived together with the
  // last but one.
  double cost = 0;

  bool operator==(const Straggler&) const = default;
};

// A value that the chief reports: floating-point operations per sample, forward
// and backward. The job's GPU utilisation is computed from it.
inline constexpr char kFlopsPerSample[] = "flops_per_sample";

// Signs of progress of a program's rank.
struct ProgressSigns {
  // The best one seen so far; the rest is about its signs.
  SignSource source = SignSource::kNone;
  // Since the last sign, or since the rank started.
  Duration still{};
  // The 99th percentile of the distances of signs; 0: not learned yet.
  Duration usual{};
  // The rank has stalled when `still` is above this.
  Duration limit{};
  // Numbers of the last log line that named a step.
  std::optional<int64_t> log_step = std::nullopt;
  std::optional<int64_t> log_total = std::nullopt;

  bool operator==(const ProgressSigns&) const = default;
};

// What a thread of the rank's process says about the collective that the
// process is in.
struct CollectiveWait {
  // It has said something lately. False: it is stopped, or gets no processor;
  // the rest is what it said last.
  bool responsive = false;
  // Whether it waits for a peer. Absent: its backend does not tell.
  std::optional<bool> waiting = std::nullopt;
  // The peer that it waits for. Absent: not known.
  std::optional<int32_t> peer = std::nullopt;
  // How many waits it has begun in its communicator.
  int64_t waits = 0;

  bool operator==(const CollectiveWait&) const = default;
};

struct RankProgress {
  int64_t step = -1;
  int64_t committed_step = -1;
  int64_t total_steps = 0;
  double epoch = 0;
  int64_t samples = 0;
  double loss = 0;
  double learning_rate = 0;
  PhaseSeconds phases;
  int64_t allreduce_bytes = 0;
  int64_t collectives = 0;
  int64_t skipped_steps = 0;
  int64_t checkpoints = 0;
  std::map<std::string, double> values;
  std::string phase;
  std::optional<Straggler> straggler = std::nullopt;
  double allreduce_busy_seconds = 0;
  // Of programs.
  std::optional<ProgressSigns> signs = std::nullopt;
  // When the rank last changed its page, by the node's clock. Absent: it has
  // none, or its daemon is older.
  std::optional<WallTime> change_time = std::nullopt;
  // Absent: the rank does not say it.
  std::optional<CollectiveWait> collective_wait = std::nullopt;

  bool operator==(const RankProgress&) const = default;
};

struct Usage {
  double cpu_seconds = 0;
  int64_t memory_bytes = 0;
  int64_t memory_peak_bytes = 0;
  std::optional<double> gpu_utilization;
  double seconds = 0;
  // The maximum over a sample period.
  std::optional<double> cpu_peak_cores = std::nullopt;
  std::optional<double> gpu_utilization_peak = std::nullopt;
  std::optional<int64_t> gpu_memory_peak_bytes = std::nullopt;
  // Payload of the TCP connections of the rank's processes. Absent: unknown.
  std::optional<int64_t> network_sent_bytes = std::nullopt;
  std::optional<int64_t> network_received_bytes = std::nullopt;
  // Read from and written to storage, and written to its log. Absent: an older
  // daemon.
  std::optional<int64_t> disk_bytes = std::nullopt;
  std::optional<int64_t> log_bytes = std::nullopt;

  bool operator==(const Usage&) const = default;
};

}  // namespace lockstep

#endif  // LOCKSTEP_COMMON_MODEL_RANK_PROGRESS_H_
