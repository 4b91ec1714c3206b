// A job as the coordinator stores it.
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

namespace lockstep::server {

// Resources of one node that one generation holds, until the node reports that
// nothing of it is left, or the node is lost.
struct Hold {
  NodeName node;
  Generation generation = 0;
  Resources resources;
  std::vector<int32_t> gpus;
  WallTime since{};
  // What the shims of the generation's ranks there keep to, as its daemon said.
  // A silent node counts as lost without an operator only with it (silence.h).
  std::optional<Fence> fence = std::nullopt;

  bool operator==(const Hold&) const = default;
};

// A rank of a worker that may restart alone (restart.h).
struct LoneRank {
  // Its task failed and will restart. It is not a cause of other failures.
  bool waits = false;
  // Time of its last restart.
  std::optional<WallTime> start;
  // Use of its earlier processes in this generation.
  Usage before;
  // How often it has failed since it is away (elastic.h).
  int32_t failures_away = 0;
  // When it was no longer away.
  std::optional<WallTime> returned;

  bool operator==(const LoneRank&) const = default;
};

// The tasks of one node are to run on another while the job's other ranks stay
// (replacing.h).
struct Replacement {
  NodeName from;
  // The ranks on `from` are gone. Otherwise they run until the others do.
  bool lost = false;
  Cause cause;
  WallTime since{};
  // Where they will run; empty: no node has room yet.
  NodeName to;
  // The GPUs there of each task, in the order of the job's tasks.
  std::vector<std::vector<int32_t>> gpus;
  // Nodes that refused to prepare, and are not asked again.
  std::vector<NodeName> refused;
  // When `to` was chosen.
  WallTime to_since{};
  // The others train without the ranks on `from`, which is there: it stops them,
  // and what they held there is free.
  bool released = false;
  // A user wants fewer tasks: no node is looked for (held_back.h).
  bool held_back = false;

  bool operator==(const Replacement&) const = default;
};

// A node that is held for the tasks of a node that is lost or left (spares.h).
struct Spare {
  NodeName node;
  // The node whose tasks it has prepared for.
  NodeName like;
  // The GPUs here of each of these tasks, in the order of the job's tasks.
  std::vector<std::vector<int32_t>> gpus;

  bool operator==(const Spare&) const = default;
};

// The current generation is to be replaced by one of another size (rescale.h).
struct Resize {
  // Tasks of chief and workers.
  int32_t tasks = 0;
  // "user/ann wants 2 tasks".
  std::string why;
  // When its ranks were asked to save and to stop. Absent: not yet.
  std::optional<WallTime> since;

  bool operator==(const Resize&) const = default;
};

// The state of a job that holds (holding.h).
struct OutputHold {
  // OUTPUT_MISSING or NO_CHECKPOINT.
  Reason reason = Reason::kNone;
  // Number of generations in a row with this result.
  int32_t looks = 0;
  WallTime since{};

  bool operator==(const OutputHold&) const = default;
};

struct Job {
  // ---- Shown (proto/lockstep/v1/job.proto, message Job) ----
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
  // How often ranks were replaced while the others stayed (recovery.h).
  int32_t recoveries = 0;
  // Durations of ended phases. The current one began at state_time.
  std::map<JobState, Duration> phase_durations;
  // The tasks of `generation`, in rank order.
  std::vector<TaskStatus> tasks;
  // Ended ones, oldest first.
  std::vector<Attempt> attempts;
  // Oldest first, the newest kMaxInPlaceRecoveries.
  std::vector<InPlaceRecovery> in_place_recoveries;
  std::optional<Checkpoint> last_checkpoint;
  std::optional<int64_t> committed_step;
  std::map<std::string, std::string> artifacts;
  std::vector<Event> events;
  Bill bill;
  int32_t exit_code = 0;
  // The request, if it was an AI Platform job. Shared between versions, like
  // the large parts of the spec.
  Shared<std::optional<TrainingJob>> training;
  // Found in the output directory at the end.
  std::vector<OutputFile> outputs;
  // The content of its images, as the first node resolved their names.
  std::vector<ImageContent> images;
  // As the last generation that computed reported it; empty if none has.
  std::string reduction_plan;
  // Content of the identity file of the output directory; empty until an
  // attempt has read or written it.
  std::string output_identity;
  // What the next generation resumes from, as set by a user. It stays until a
  // generation that followed it has a checkpoint, so a generation that fails
  // earlier resumes from the same target.
  std::optional<RestoreTarget> restore;
  // How many tasks of chief and workers a user wants at most. 0: all of the
  // spec.
  int32_t wanted_tasks = 0;

  // ---- Kept for decisions ----
  // Set when every node of the generation has prepared.
  std::optional<ClusterSpec> cluster;
  std::string job_key;
  // Set while the current generation is being stopped because of a failure. The
  // next step is decided when it is gone everywhere.
  std::optional<Cause> failing;
  // The final state after FINISHING.
  std::optional<JobState> outcome;
  bool cancel_requested = false;
  // When `generation` began.
  WallTime attempt_start{};
  // Steps committed before this generation.
  int64_t committed_before = 0;
  // Oldest first. The last one is `generation`, once it is placed. lineage.h
  // decides which entries are kept.
  std::vector<LineageEntry> lineage;
  std::vector<Directive> directives;
  uint32_t next_directive = 1;
  std::vector<Hold> holds;
  // The next generation is higher than this, see StoreSnapshot.
  Generation generation_floor = 0;
  // The earliest time of the next try.
  std::optional<WallTime> not_before;
  // Generations in a row that ended before RUNNING.
  int32_t failed_formings = 0;
  // By node, the highest number of its recorded rank events.
  std::map<NodeName, uint32_t> event_numbers;
  // Times of exits with 42 in the last minute.
  std::vector<WallTime> free_restarts;
  // Times of failures in the last hour without evidence against the program.
  std::vector<WallTime> uncharged_failures;
  // The ranks of `generation` that failed alone.
  std::map<int32_t, LoneRank> lone_ranks;
  // The newest recovery of `generation`, from 1, and when the first one was
  // decided that followed the same failure.
  uint32_t recovery = 0;
  WallTime recovery_start{};
  // By node, in the order in which they were decided; each node once.
  std::vector<Replacement> replacements;
  // In the order in which they were found.
  std::vector<Spare> spares;
  // Nodes that refused to prepare as spares of `generation`.
  std::vector<NodeName> refused_spares;
  // Signature of the last attempt's failure, see Failure::signature in
  // verdict.h. Empty if it did not fail, or if its failure does not predict the
  // next one.
  std::string failure_signature;
  std::optional<OutputHold> output_hold;
  std::optional<Resize> resize;

  bool operator==(const Job&) const = default;
};

// Returns the nodes of `job`'s current tasks, in name order.
std::set<NodeName> NodesOf(const Job& job);

// Returns every rank of the current tasks, in order.
std::vector<const RankStatus*> RanksOf(const Job& job);

// Returns the rank whose exit 0 makes the job succeed: the first of the first
// task.
// REQUIRES: tasks is not empty.
const RankStatus& DecidingRank(const Job& job);

// Returns the use of a rank in its generation. `report` is its node's report on
// its newest process. Use is summed, a utilization is the mean over time, a
// peak is the largest, and memory is the current value.
Usage UsageOf(const Job& job, const RankStatus& report);

// "rank 1", "ranks 1, 3".
std::string RanksLabel(const std::set<int32_t>& ranks);

// "rank 1 (worker 0 on b)".
std::string RankLabel(const Job& job, int32_t rank);

// The control word has room for 12 bits of a directive's number.
inline constexpr uint32_t kMaxDirective = 4095;

// Cuts a sentence of an event or a cause to `most` bytes, at the end of a UTF-8
// character. Ranks may send any text, and it must stay storable.
inline constexpr size_t kMaxSentence = 2000;
std::string Shorten(std::string sentence, size_t most = kMaxSentence);

inline constexpr size_t kMaxArtifactsOfJob = 64;
inline constexpr size_t kMaxOutputsOfJob = 256;

// Appends an event. Beyond kMaxEvents it removes the oldest, but never the
// first kKeptFirstEvents.
inline constexpr size_t kMaxEvents = 200;
inline constexpr size_t kKeptFirstEvents = 20;
void AddEvent(Job* job, Reason reason, std::string message, Time now);
// Does the same, unless this generation already has an event with this message.
void AddEventOnce(Job* job, Reason reason, const std::string& message,
                  Time now);

// Changes the state, accounts the time spent in the previous one, sets the
// cause, and adds an event.
void EnterState(Job* job, JobState state, Cause cause, Time now);

// Returns the time spent in `phase` so far, including the current state.
Duration PhaseDuration(const Job& job, JobState phase, WallTime now);

}  // namespace lockstep::server

#endif  // LOCKSTEP_SERVER_CORE_JOB_H_
