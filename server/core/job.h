// A job in the coordinator: everything that is stored about it.
//
// Pure value. lifecycle.h changes it; store/ writes it; service/ shows it.
#ifndef LOCKSTEP_SERVER_CORE_JOB_H_
#define LOCKSTEP_SERVER_CORE_JOB_H_

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "common/base/shared_value.h"
#include "common/model/cluster_spec.h"
#include "common/model/job.h"
#include "common/model/node.h"
#include "common/model/restore_target.h"
#include "common/training/training_input.h"

namespace lockstep {

// Resources of one node that one generation holds, until the node says that
// nothing of it is left or the node is lost.
struct Hold {
  NodeName node;
  Generation generation = 0;
  Resources resources;
  std::vector<int32_t> gpus;
  WallTime since{};

  bool operator==(const Hold&) const = default;
};

// A rank of a worker that may be started again alone (restart.h).
struct LoneRank {
  // Its task failed and will be started again: nobody else's cause.
  bool waits = false;
  // When it was started again last.
  std::optional<WallTime> start;
  // What its processes before, in this generation, used.
  Usage before;

  bool operator==(const LoneRank&) const = default;
};

// The job holds (holding.h).
struct OutputHold {
  // OUTPUT_MISSING or NO_CHECKPOINT.
  Reason reason = Reason::kNone;
  // Generations in a row that found it so.
  int32_t looks = 0;
  WallTime since{};

  bool operator==(const OutputHold&) const = default;
};

struct Job {
  // ---- Shown (proto/lockstep/v1/types.proto, message Job) ----
  JobSpec spec;
  std::string uid;
  std::string owner;
  int64_t resource_version = 0;
  WallTime create_time{};
  std::optional<WallTime> start_time;
  std::optional<WallTime> end_time;
  JobState state = JobState::kQueued;
  WallTime state_time{};
  Cause cause;
  Generation generation = 0;
  int32_t attempt = 0;
  int32_t failures_without_progress = 0;
  int32_t restarts = 0;
  // Of phases that ended; the current one runs since state_time.
  std::map<JobState, Duration> phase_durations;
  // Of `generation`, in rank order.
  std::vector<TaskStatus> tasks;
  // Ended ones, oldest first.
  std::vector<Attempt> attempts;
  std::optional<Checkpoint> last_checkpoint;
  std::optional<int64_t> committed_step;
  std::map<std::string, std::string> artifacts;
  std::vector<Event> events;
  Bill bill;
  int32_t exit_code = 0;
  // What came in, where it came in AI Platform's words. Shared as what is large
  // of the spec.
  Shared<std::optional<TrainingJob>> training;
  // Found in the output directory at the end.
  std::vector<OutputFile> outputs;
  // What the names of its images stand for: as the first node found.
  std::vector<ImageContent> images;
  // As the last generation that computed said; empty: none has.
  std::string reduction_plan;
  // What the identity file of the output directory holds; empty: no attempt
  // has got that far.
  std::string output_identity;
  // What a person said that the next generation shall resume from. It stays
  // until a checkpoint of a generation that obeyed it is there: what fails
  // before that resumes from the same.
  std::optional<RestoreTarget> restore;

  // ---- Kept for decisions ----
  // Made when every node of the generation has prepared.
  std::optional<ClusterSpec> cluster;
  std::string job_key;
  // Set when the current generation is being stopped because of a failure;
  // what comes next is decided when it is gone everywhere.
  std::optional<Cause> failing;
  // What FINISHING ends in.
  std::optional<JobState> outcome;
  bool cancel_requested = false;
  // When `generation` began.
  WallTime attempt_start{};
  // Steps committed before this generation.
  int64_t committed_before = 0;
  // Oldest first; the last one is `generation`, once it is placed. What is
  // kept: lineage.h.
  std::vector<LineageEntry> lineage;
  std::vector<Directive> directives;
  uint32_t next_directive = 1;
  std::vector<Hold> holds;
  // The next generation is above it: see StoreSnapshot.
  Generation generation_floor = 0;
  // No new try before this time.
  std::optional<WallTime> not_before;
  // Generations in a row that ended before RUNNING.
  int32_t failed_formings = 0;
  // By node, the highest number of its rank events already recorded.
  std::map<NodeName, uint32_t> event_numbers;
  // When ranks exited 42 in the last minute.
  std::vector<WallTime> free_restarts;
  // When it failed in the last hour by what nothing says is the program's.
  std::vector<WallTime> uncharged_failures;
  // Of `generation`, by rank: those that failed alone.
  std::map<int32_t, LoneRank> lone_ranks;
  // How the last attempt failed, see Failure::signature in verdict.h; empty:
  // it did not, or it says nothing of the next one.
  std::string failure_signature;
  std::optional<OutputHold> output_hold;

  bool operator==(const Job&) const = default;
};

// Nodes that `job`'s current tasks are on, in name order.
std::set<NodeName> NodesOf(const Job& job);

// Every rank of the current tasks that takes part in the all-reduce, or all
// ranks.
std::vector<const RankStatus*> RanksOf(const Job& job);

// The rank whose exit 0 makes the job succeed: the first of the first task.
// REQUIRES: tasks is not empty.
const RankStatus& DecidingRank(const Job& job);

// All that a rank used in its generation, by what its node says of its newest
// process: use is summed, a utilization is the mean over the time, peaks are
// the largest, memory is what it is now.
Usage UsageOf(const Job& job, const RankStatus& said);

// "rank 1 (worker 0 on b)".
std::string RankLabel(const Job& job, int32_t rank);

// The control word has room for 12 bits of a directive's number.
inline constexpr uint32_t kMaxDirective = 4095;

// Events and causes are sentences: what is longer is cut, at the end of a
// UTF-8 character. Ranks may say anything, and it must stay storable.
inline constexpr size_t kMaxSentence = 2000;
std::string Shorten(std::string sentence, size_t most = kMaxSentence);

inline constexpr size_t kMaxArtifactsOfJob = 64;
inline constexpr size_t kMaxOutputsOfJob = 256;

// Appends an event; the oldest go when there are more than kMaxEvents, the
// first kKeptFirstEvents always stay.
inline constexpr size_t kMaxEvents = 200;
inline constexpr size_t kKeptFirstEvents = 20;
void AddEvent(Job* job, Reason reason, std::string message, Time now);
// The same, unless this generation has an event with this message.
void AddEventOnce(Job* job, Reason reason, const std::string& message,
                  Time now);

// Changes the state, accounts the time spent in the last one, says why, and
// records an event.
void EnterState(Job* job, JobState state, Cause cause, Time now);

// Time spent in `phase` so far, the current one included.
Duration PhaseDuration(const Job& job, JobState phase, WallTime now);

}  // namespace lockstep

#endif  // LOCKSTEP_SERVER_CORE_JOB_H_
