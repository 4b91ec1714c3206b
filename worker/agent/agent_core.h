// What a worker daemon does about the gangs that it is told to run.
//
// Pure: no I/O, no lock, no clock. Level-triggered: goals and events come in
// any order and any number of times; out come actions. Thread-compatible: the
// daemon's event loop owns it.
//
// A gang is this node's part of one generation of a job:
//
//   phase      on                                  becomes, and does
//   (none)     PREPARE                             PREPARING
//   (none)     LAUNCH, GO                          REFUSED: it never prepared
//   (none)     STOP                                STOPPED: nothing is there
//   PREPARING  every lower generation of the job   kPrepare
//              here is over
//   PREPARING  prepared                            PREPARED
//   PREPARING  refused                             REFUSED
//   PREPARED   PREPARE, other images settled       PREPARING, kRelease,
//                                                  kPrepare
//   PREPARED   PREPARE, with the identity of an    PREPARING, kCheckOutput
//              output directory not seen so far
//   PREPARED   LAUNCH, GO with our ports           LAUNCHED, kStartRank each
//   PREPARED   LAUNCH, GO with other ports         REFUSED
//   LAUNCHED   GO                                  kGo to each joined rank
//   PREPARING,
//   PREPARED   STOP                                STOPPED, kRelease
//   LAUNCHED   STOP                                STOPPING, kAbort, kKillTree
//   LAUNCHED,
//   STOPPING   the last rank has exited            STOPPED, kRelease
//   STOPPING   `grace` and kForceAfter are over    kKillTree at once, repeated
//   LAUNCHED,  LAUNCH, GO with a higher            LAUNCHED, kKillTree to what
//   STOPPED    `restarts` of a program's task      runs of the task; when all
//              and no STOP so far                  of it has ended, kStartRank
//   REFUSED,
//   STOPPED    FORGET                              (none), kForget
//   others     FORGET                              as STOP, later forgotten
//
// Goals only rise. Any goal below STOP for a generation is also a STOP of all
// lower ones of that job; a goal below STOP for a generation lower than one
// that is here already is refused. Each change of what the coordinator would
// want to know is a kReport.
#ifndef LOCKSTEP_WORKER_AGENT_AGENT_CORE_H_
#define LOCKSTEP_WORKER_AGENT_AGENT_CORE_H_

#include <compare>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "common/base/clock.h"
#include "common/base/status.h"
#include "common/model/assignment.h"
#include "common/model/node.h"

namespace lockstep {

struct GangKey {
  JobName job;
  Generation generation = 0;

  auto operator<=>(const GangKey&) const = default;
};

// "job mnist g3".
std::string Describe(const GangKey& key);

// Of the task that `rank` is of; null: of none here.
const LocalTask* TaskOf(const GangSpec& spec, int32_t rank);

struct Action {
  enum class Kind {
    // Check the host and lease ports: answer with OnPrepared or OnRefused.
    kPrepare,
    // Ready otherwise: look for the identity of the output directory that the
    // spec names. Answer with OnOutputChecked or OnRefused.
    kCheckOutput,
    // Answer with OnRankStarted and OnRankExited. Of a rank with `restarts` its
    // last process has ended.
    kStartRank,
    // To the rank, over its link.
    kGo,
    kAbort,
    kDirective,
    // SIGTERM to the rank's tree, SIGKILL after `grace` (0: at once).
    kKillTree,
    // Ports and the like of the gang are free.
    kRelease,
    // The status changed.
    kReport,
    // Its records and files may go; the gang is no longer known here.
    kForget,
  };
  Kind kind = Kind::kReport;
  GangKey gang;
  int32_t rank = 0;
  Duration grace{};
  std::string message;  // kAbort.
  Directive directive;  // kDirective.

  bool operator==(const Action&) const = default;
};

// Of a gang, or of one rank of it.
Action MakeAction(Action::Kind kind, const GangKey& key, int32_t rank = 0);

using Actions = std::vector<Action>;

// What a rank wants known. What is absent says nothing.
struct RankNews {
  std::optional<Checkpoint> checkpoint;
  std::string artifact_name;
  std::string artifact_path;
  std::string event;
  Reason event_reason = Reason::kNone;
  std::string failure;
  Reason failure_reason = Reason::kNone;
  bool victim = false;
  std::optional<int64_t> resumed_step;
  uint32_t directive_done = 0;
  std::string reduction_plan = {};
  // Ranks that it could not reach, or lost, and its words for that, at most
  // kMaxLostPeerError bytes.
  std::vector<int32_t> lost_peers = {};
  std::string lost_peer_error = {};
};

struct AgentOptions {
  NodeName node;
  // Of generations that a higher one ends, and of ranks of a task that is
  // started again.
  Duration implied_grace = std::chrono::seconds(1);
  // SIGKILL by us, after the shim should have sent it.
  Duration force_after = std::chrono::seconds(2);
};

// Exit code of a native rank that ended because its peer was gone.
inline constexpr int32_t kPeerLostCode = 75;
// Newest events of a gang that are kept and reported.
inline constexpr size_t kKeptEvents = 256;

// Peers that the ranks of a gang lost: as many pairs are kept, the first ones,
// each with what was said of it first.
inline constexpr size_t kKeptLostPeers = 1024;
inline constexpr size_t kMaxLostPeerError = 512;

// What a gang that is ready has.
struct PreparedGang {
  std::vector<int32_t> ports;
  int32_t master_port = 0;
  std::map<std::string, int32_t> service_ports = {};
  std::vector<ImageContent> images = {};
  // For the job's history.
  std::vector<std::string> notes = {};
  // As seen from here; empty: not looked for.
  std::string output_identity = {};
};

class AgentCore {
 public:
  struct Gang {
    // With the highest goal so far, and what came with it.
    Assignment assignment;
    GangStatus status;
    bool prepare_asked = false;
    // The settled images that kPrepare was asked with.
    std::vector<ImageContent> prepared_with;
    bool forget_when_over = false;
    // When it was first told to stop.
    std::optional<WallTime> stopped_at;
    // When to kill by force next.
    std::optional<MonoTime> kill_at;
    uint32_t last_event = 0;
    uint32_t last_directive = 0;
    struct LastWords {
      std::string failure;
      Reason reason = Reason::kNone;
      bool victim = false;
    };
    std::map<int32_t, LastWords> words;
  };

  explicit AgentCore(AgentOptions options) : options_(std::move(options)) {}

  // What a daemon of this node started before. `status` holds its ranks; those
  // without exit are alive, as far as is known.
  void Adopt(const Assignment& assignment, GangStatus status);

  // Aborted: from a coordinator of a lower epoch than one seen before.
  // FailedPrecondition: a higher generation of the job is here.
  Status OnAssignment(const Assignment& assignment, Time now, Actions* out);

  // Where other images were settled meanwhile than are here, once more.
  void OnPrepared(const GangKey& key, PreparedGang prepared, Time now,
                  Actions* out);
  void OnPrepared(const GangKey& key, std::vector<int32_t> ports,
                  int32_t master_port, Actions* out) {
    OnPrepared(key, {std::move(ports), master_port}, Time(), out);
  }
  void OnOutputChecked(const GangKey& key, std::string identity, Actions* out);
  void OnRefused(const GangKey& key, Cause cause, Actions* out);
  // Its exec succeeded. Repeats do nothing.
  void OnRankStarted(const GangKey& key, int32_t rank, int64_t pid,
                     Actions* out);
  void OnRankJoined(const GangKey& key, int32_t rank, Actions* out);
  void OnRankNews(const GangKey& key, int32_t rank, const RankNews& news,
                  Time now, Actions* out);
  // The rank and its tree are gone. The first exit counts.
  void OnRankExited(const GangKey& key, int32_t rank, ExitStatus exit,
                    const RankProgress& progress, const Usage& usage,
                    Actions* out);
  // Call at NextDeadline or later.
  void OnTick(Time now, Actions* out);
  std::optional<MonoTime> NextDeadline() const;

  const Gang* Find(const GangKey& key) const;
  const std::map<GangKey, Gang>& gangs() const { return gangs_; }
  uint64_t epoch() const { return epoch_; }
  // The coordinator has another history, whose epochs are not comparable.
  void ForgetEpoch() { epoch_ = 0; }

 private:
  void Raise(const GangKey& key, const Assignment& assignment, Time now,
             Actions* out);
  void StartFresh(const GangKey& key, const Assignment& assignment,
                  Actions* out);
  void Stop(const GangKey& key, Gang* gang, Duration grace,
            const std::string& message, Time now, Actions* out);
  void Launch(const GangKey& key, Gang* gang, Actions* out);
  void RestartTasks(const GangKey& key, Gang* gang, Actions* out);
  void Go(const GangKey& key, Gang* gang, Actions* out);
  void EndIfOver(const GangKey& key, Gang* gang, Actions* out);
  void Over(const GangKey& key, Gang* gang, GangPhase phase, Actions* out);
  void ForgetIfAsked(const GangKey& key, Actions* out);
  void PrepareWaiting(const JobName& job, Actions* out);
  void PrepareAgain(const GangKey& key, Gang* gang, Actions* out);
  void CheckOutput(const GangKey& key, Gang* gang, Actions* out);
  // PREPARED, unless more is settled meanwhile than was looked at.
  void EndPreparing(const GangKey& key, Gang* gang, Actions* out);
  bool LowerOnesAreOver(const GangKey& key) const;
  Status CheckPorts(const Gang& gang) const;
  RankStatus* FindRank(const GangKey& key, int32_t rank, Gang** gang);
  // Those that are other ranks of the job.
  static void KeepLostPeers(int32_t rank, const RankNews& news, Gang* gang);

  const AgentOptions options_;
  uint64_t epoch_ = 0;
  std::map<GangKey, Gang> gangs_;
};

}  // namespace lockstep

#endif  // LOCKSTEP_WORKER_AGENT_AGENT_CORE_H_
