// The coordinator: decide, commit, apply, tell. In that order, always.
//
// Every public call takes the one lock, hands what it learned to the pure
// rules of server/core, commits what they decided in one transaction, replaces
// the jobs in memory, and only then tells watchers and worker daemons. A
// failed commit leaves everything as it was; what was not committed is decided
// again at the next tick. Reports of a wide gang are taken in at once and may
// be decided together, see report_pace.h.
//
// Hard state: jobs, nodes, answered requests (store/). Soft state, rebuilt
// from reports: leases, progress, what each node has, rendezvous keys.
//
// Thread-safe. Nothing called with the lock held blocks but the commit.
#ifndef LOCKSTEP_SERVER_COORDINATOR_COORDINATOR_H_
#define LOCKSTEP_SERVER_COORDINATOR_COORDINATOR_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "common/base/status.h"
#include "server/coordinator/answer_book.h"
#include "server/coordinator/observer.h"
#include "server/coordinator/steady_clock.h"
#include "server/coordinator/watch_hub.h"
#include "server/coordinator/worker_link.h"
#include "server/core/assignments.h"
#include "server/core/bill.h"
#include "server/core/images.h"
#include "server/core/inquiry.h"
#include "server/core/job_places.h"
#include "server/core/lifecycle.h"
#include "server/core/log_owner.h"
#include "server/core/membership.h"
#include "server/core/pair_probe.h"
#include "server/core/progress.h"
#include "server/core/report_pace.h"
#include "server/core/restart.h"
#include "server/core/scheduler.h"
#include "server/core/strikes.h"
#include "server/core/work_files.h"
#include "server/store/store.h"

namespace lockstep {

// A running job without a step for so long is worth a word.
inline constexpr Duration kQuietTime = std::chrono::seconds(30);
// A certificate that ends within this is, too.
inline constexpr Duration kCertificateWarning = std::chrono::hours(24 * 30);

struct CoordinatorOptions {
  LifecycleTimeouts timeouts;
  StopGraces graces;
  MembershipOptions membership;
  InquiryOptions inquiry;
  SchedulerOptions scheduler;
  PrefetchOptions prefetch;
  Prices prices;
  StallOptions stall;
  StrikeOptions strikes;
  // How long a restarted daemon may take to find its tasks again.
  Duration adoption_window = std::chrono::seconds(60);
  // How long the answer to a request id is remembered.
  Duration remember_requests = std::chrono::hours(24);
  AnswerLimits answers;
  // What the ranks of one generation may put into their rendezvous, and those
  // of all jobs: 1 KiB for each of 65,536 ranks.
  size_t rendezvous_bytes = 64 << 20;
  size_t all_rendezvous_bytes = 256 << 20;
  // Jobs that ended earlier than this, or are more than so many, are deleted.
  Duration retain_jobs = std::chrono::hours(24 * 30);
  size_t retain_job_count = 10'000;
  // Of one user, jobs that have not ended: their number, and the bytes of what
  // the user wrote in them.
  size_t max_live_jobs_per_user = 10'000;
  size_t max_live_bytes_per_user = 64 << 20;
  // The logs of the job with this uid may go; must not block, nor call back.
  std::function<void(const std::string& uid)> on_job_deleted;
  // Sources of ids and keys; a rule has no dice.
  std::function<std::string()> new_uid;
  std::function<std::string()> new_key;
  // May be null; outlives the coordinator.
  CoordinatorObserver* observer = nullptr;
};

// A command with an id: a repeat gets the first answer.
struct RequestKey {
  std::string client;
  // Empty: not remembered (validate_only).
  std::string id;
  std::string method;
  std::string content_hash;
};

// A job that comes in.
struct Submission {
  JobSpec spec;
  // What came in, where it came in AI Platform's words.
  std::optional<TrainingJob> training;
  // What was settled on the way, for its history.
  std::vector<std::string> events;
};

// What a person changes of a job.
struct JobUpdate {
  bool clear_labels = false;
  std::vector<std::string> remove_labels;
  // Set after the others were removed.
  std::map<std::string, std::string> set_labels;
  // Of a job that has not ended; absent: it stays.
  std::optional<int32_t> priority = std::nullopt;
  // The job's, else nothing is changed; 0: whatever it is.
  int64_t version = 0;
};

// Where a job would go now.
struct JobPlan {
  // Empty: it would wait, and `waiting` says why, or it can never run here.
  std::vector<TaskPlacement> placement;
  Cause waiting;
  // Every reason why it can never run here.
  std::vector<std::string> never_fits;
};

// What is shown of a job: the stored part, and what is only known now.
struct JobSnapshot {
  std::shared_ptr<const Job> job;
  // When it was taken, by the coordinator's clock.
  WallTime time{};
  // Of a job that waits: why, now. Of an active one: what is the matter, if
  // anything is.
  std::optional<Cause> waiting;
  // Newest reports of its ranks, by rank.
  std::map<int32_t, RankStatus> live;
  std::optional<JobProgressInfo> progress;
  // One that holds the others up, long before it is given up for it.
  std::optional<Stall> standing;
  Bill bill;
  // Of a list: 1 is the next; 0: it does not wait, or nobody looked.
  int64_t queue_position = 0;
  // What is for its owner and admins was left out (server/query/visibility.h).
  bool details_hidden = false;
};

// Something of a job that a node runs and the store does not know.
struct UnknownGang {
  JobName job;
  std::string job_uid;
  Generation generation = 0;
};

struct NodeSnapshot {
  // With state and message as they are shown: DRAINING, QUARANTINED ...
  Member member;
  Resources allocated;
  std::vector<JobName> jobs;
  std::vector<UnknownGang> unknown = {};
  // Until when it gets no new work because it failed jobs.
  std::optional<WallTime> cool_down_end = {};
  // No gang is placed on it and one of these.
  std::vector<NodeName> apart_from = {};
};

struct CoordinatorStats {
  std::map<JobState, int64_t> jobs;
  std::map<NodeState, int64_t> nodes;
  Resources capacity;
  Resources allocated;
  int64_t commits = 0;
  double commit_seconds = 0;
  int64_t failed_commits = 0;
  double oldest_queued_seconds = 0;
};

// The cluster at one moment, for metrics and pages.
struct CoordinatorView {
  struct JobEntry {
    JobSnapshot snapshot;
    // When one of its ranks was last seen to finish a step.
    std::optional<MonoTime> last_step;
  };
  Time time;
  bool store_healthy = true;
  Prices prices;
  // All jobs, ended ones included.
  std::map<JobState, int64_t> jobs_by_state;
  // By name: those that have not ended, or not long ago.
  std::vector<JobEntry> jobs;
  // By name.
  std::vector<NodeSnapshot> nodes;
  // Of this coordinator; and of the nodes that refuse it, what they obeyed:
  // "epoch 9".
  uint64_t epoch = 0;
  std::map<NodeName, std::string> refused_by;
};

class Coordinator {
 public:
  // `store`, `clock` and `hub` outlive the coordinator. Of `clock` only steady
  // progress is believed: see steady_clock.h.
  Coordinator(CoordinatorOptions options, Store* store, const Clock* clock,
              WatchHub* hub);

  // Reads the store; call once, before anything else.
  Status Load();
  uint64_t epoch() const { return epoch_; }
  // What its records are written by; whoever compares with them uses this.
  const Clock& clock() const { return steady_clock_; }
  // What use costs from now on; of jobs that have ended, nothing changes.
  void SetPrices(Prices prices);
  Prices prices() const;
  // Digests of the packages of all jobs that have not ended.
  std::set<std::string> NeededPackages() const;
  // False after a commit failed, until one succeeds.
  bool store_healthy() const;
  // Aborted: another coordinator has opened the store. This one must end.
  Status taken_over() const;

  // ---- Clients ----
  // Encodes the answer to a command, to be stored with its effect.
  using Encode = std::function<std::string(const JobSnapshot&)>;

  // The first answer to a command that is repeated; nullopt: it is new.
  StatusOr<std::optional<std::string>> AnswerTo(const RequestKey& request);
  // The answer's bytes; of a repeat, the first answer's.
  StatusOr<std::string> Submit(const RequestKey& request,
                               const Submission& submission,
                               const std::string& owner, const Encode& encode);
  StatusOr<std::string> Submit(const RequestKey& request, const JobSpec& spec,
                               const std::string& owner, const Encode& encode);
  // `may` says whether the caller may change this job.
  using MayChange = std::function<Status(const Job&)>;
  StatusOr<std::string> CancelJob(const RequestKey& request,
                                  const JobName& name, const MayChange& may,
                                  const Encode& encode);
  // FailedPrecondition: the job is not at `update.version` any more, or has
  // ended and gets a priority.
  StatusOr<std::string> UpdateJob(const RequestKey& request,
                                  const JobName& name, const JobUpdate& update,
                                  const MayChange& may, const Encode& encode);
  StatusOr<std::string> RequestCheckpoint(const RequestKey& request,
                                          const JobName& name,
                                          const MayChange& may,
                                          const Encode& encode);
  // Errors as of RestoreTo (server/core/holding.h).
  StatusOr<std::string> RestoreJob(const RequestKey& request,
                                   const JobName& name,
                                   const RestoreTarget& target,
                                   const MayChange& may, const Encode& encode);
  // Of a job that has ended. Its name stays taken. `answer` is what a repeat
  // gets.
  StatusOr<std::string> DeleteJob(const RequestKey& request,
                                  const JobName& name, const MayChange& may,
                                  const std::string& answer);
  // ---- Operators; durable like commands on jobs ----
  using EncodeNode = std::function<std::string(const NodeSnapshot&)>;
  using EncodeJobs = std::function<std::string(const std::vector<JobName>&)>;
  // `drain.time` is set here.
  StatusOr<std::string> DrainNode(const RequestKey& request,
                                  const NodeName& name, Drain drain,
                                  const EncodeNode& encode);
  StatusOr<std::string> UndrainNode(const RequestKey& request,
                                    const NodeName& name,
                                    const EncodeNode& encode);
  // What the node offers may be used.
  StatusOr<std::string> ApproveNode(const RequestKey& request,
                                    const NodeName& name,
                                    const EncodeNode& encode);
  // Given the jobs that had something there.
  StatusOr<std::string> ForgetNode(const RequestKey& request,
                                   const NodeName& name,
                                   const EncodeJobs& encode);

  // What would become of `spec` of `owner`; changes nothing. Refuses what
  // Submit would refuse, but for what can never fit, which the plan says.
  StatusOr<JobPlan> Plan(const JobSpec& spec, const std::string& owner);
  StatusOr<JobSnapshot> GetJob(const JobName& name);
  // 1: the next; 0: it does not wait, or is not there.
  int64_t QueuePosition(const JobName& name) const;
  // Whose it is; empty: there is no such job.
  std::string OwnerOf(const JobName& name) const;
  // Newest first.
  std::vector<JobSnapshot> ListJobs();
  int64_t version();
  std::vector<NodeSnapshot> ListNodes();
  StatusOr<NodeSnapshot> GetNode(const NodeName& name);
  CoordinatorStats Stats();
  // The job with this uid, for who keeps its logs.
  LogOwner FindLogOwner(const std::string& uid);
  // Where the working directory of the task of `rank` is, for a caller who
  // `may` read it. NotFound, FailedPrecondition: see WorkSiteOf.
  struct FoundWork {
    std::string job_uid;
    WorkSite site;
  };
  StatusOr<FoundWork> FindWork(const JobName& name, int32_t rank,
                               const MayChange& may);
  // The job's logs are gone: nodes that are connected remove its working
  // directories, too.
  void DropWork(const std::string& uid);
  // With the jobs that ended no longer than `linger` ago.
  CoordinatorView View(Duration linger);

  // ---- Worker daemons ----
  // Names one stream; messages of an older one of the same node are Aborted.
  // Where another daemon's stream of the node is open, this one is a newcomer
  // (core/membership.h): its gangs are taken in, and the rest of what it says
  // is dropped, until it is welcomed or its stream closed, within a second or
  // so. Unavailable: another newcomer is judged just now.
  using SessionId = uint64_t;
  StatusOr<SessionId> Register(const NodeInfo& info,
                               const std::vector<GangStatus>& gangs,
                               std::shared_ptr<WorkerLink> link,
                               const std::vector<std::string>& work_jobs = {},
                               int32_t probe_port = 0);
  // Whether a newcomer waits for its judgement.
  bool IsContested(const NodeName& node);
  // What this coordinator says of its store.
  StorePoint point();
  // Histories that its own replaced.
  const std::vector<std::string>& replaced_histories() const {
    return replaced_histories_;
  }
  // OK, or why a node that has obeyed `obeyed` must not obey this coordinator.
  // Then it is not registered; that is said until it is, or is forgotten.
  Status CheckObeyed(const NodeName& node, const StorePoint& obeyed);
  struct RankReport {
    JobName job;
    Generation generation = 0;
    std::vector<RankStatus> ranks;
  };
  Status OnHeartbeat(SessionId session, uint64_t sequence,
                     NodeReadings readings,
                     const std::vector<RankReport>& reports);
  Status OnGangStatus(SessionId session, const GangStatus& status);
  // What a node says of a silent one. What was not asked counts as nothing.
  Status OnProbed(SessionId session, const ProbeAnswer& answer);
  // All that the node says of what it was told to fetch ahead.
  Status OnPrefetched(SessionId session, std::vector<Prefetched> items);
  // ResourceExhausted, of both: ranks have put too much there. Who asks for
  // what is not there then waits until the forming deadline.
  Status OnRendezvousPut(SessionId session, const JobName& job,
                         Generation generation, const std::string& key,
                         const std::string& value);
  Status OnRendezvousGet(SessionId session, const JobName& job,
                         Generation generation, const std::string& key);
  // NotFound: a job or attempt that is not (or no longer) known; its bytes
  // may go. FailedPrecondition: a replaced history knew it, and this store does
  // not; they may not. PermissionDenied: that rank never ran on this node.
  // `*life`: how often the node has said that it started the rank again alone.
  Status CheckLog(SessionId session, const JobName& job, const std::string& uid,
                  Generation generation, int32_t rank, int32_t* life = nullptr);
  void OnStreamEnd(SessionId session);
  // Ends all streams: the coordinator is leaving, daemons shall try again.
  void CloseStreams();

  // Leases, timeouts, backoffs, progress for watchers. Every 100 ms or so.
  void Tick();

 private:
  using GangKey = std::pair<JobName, Generation>;

  struct Rendezvous {
    std::map<std::string, std::string> values;
    // Who waits for a key that is not there yet.
    std::map<std::string, std::set<NodeName>> waiting;
    size_t bytes = 0;
  };
  struct Entry {
    explicit Entry(const StallOptions& options) : stall(options) {}
    std::shared_ptr<const Job> job;
    // Of its spec.
    size_t spec_bytes = 0;
    // The job's, once a node was told it; null: none was.
    std::shared_ptr<const SharedClusterSpec> cluster;
    JobPlaces places;
    ReportPace pace;
    MonoTime state_since;
    std::optional<MonoTime> all_started_since;
    AwaitedSince awaited_since;
    std::optional<Cause> waiting;
    ProgressMeter meter;
    StallWatch stall;
    Rendezvous rendezvous;  // Of the current generation.
    bool progress_news = false;
    // A step that needed every rank finished then; its nodes are not told yet.
    std::optional<MonoTime> proof;
    // Its history says that a rank stands still, and since when.
    bool standing = false;
    MonoTime standing_since;
    // Of a generation that is being given up, see JobView.
    std::set<NodeName> late;
    bool all_stood = false;
    uint64_t pair_probe_id = 0;
    std::optional<PairProbe> pair_probe;
  };
  struct Session {
    SessionId id = 0;
    Incarnation incarnation;
    std::shared_ptr<WorkerLink> link;
    // Without the cluster spec, which does not change within a generation.
    std::map<GangKey, Assignment> sent;
    // What it was told to fetch ahead; absent: nothing yet.
    std::optional<Prefetch> prefetch;
  };
  // A stream that registers.
  struct Arrival {
    SessionId id = 0;
    std::vector<GangStatus> gangs;
    std::shared_ptr<WorkerLink> link;
    std::vector<std::string> work_jobs;
    int32_t probe_port = 0;
  };
  struct NodeSoft {
    bool reported = false;
    std::map<GangKey, GangStatus> gangs;
    std::vector<Prefetched> prefetched;
    std::optional<Session> session;
    // Jobs with a hold or tasks here.
    std::set<JobName> jobs;
    // Uids of jobs whose working directories may be there.
    std::set<std::string> work_jobs;
    // Of the last registration since the coordinator started; 0: none.
    int32_t probe_port = 0;
    // When a daemon of another boot than the one before it was admitted.
    std::optional<MonoTime> booted;
  };

  // reconcile.cc
  void Reconcile(Time now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // As Reconcile, but in a large cluster the next tick does it: when all its
  // nodes come back at once, each would have everything decided again.
  void ReconcileSoon(Time now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Of all of the job's nodes.
  JobView ViewOf(const Entry& entry, Time now)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  JobView ViewOf(const Entry& entry, Time now, const std::set<NodeName>& nodes)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Nodes that a finished step proved to live.
  void ApplyProofs() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Events for tasks whose GPUs are bad.
  void NoteBadGpus(Job* job, const JobView& view, Time now)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // That a rank stands still, and that it goes on, in the job's history.
  void NoteStanding(Entry* entry, Job* job, Time now)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  std::map<JobName, Job> DecideDirty(Time now)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void ScheduleQueue(Time now, std::map<JobName, Job>* changed)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  std::vector<HostCapacity> Hosts() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Not to be placed yet. A job that a node had no room for is tried again
  // earlier where room was made since.
  bool BacksOff(const Entry& entry, Time now)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  // prefetch.cc
  // The front of the queue, without jobs in `changed`.
  std::vector<const Job*> JobsAhead(const std::map<JobName, Job>& changed)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void TakeAhead(Time now, std::map<JobName, Job>* changed)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void TellAhead() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  // replaced_history.cc
  // A replaced history started it, and this store does not know it: it is left
  // alone until it ends, or its node is drained with a grace. See
  // docs/design/coordinator.md, "The store's file".
  bool IsUnknown(const GangStatus& gang) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // The drain that ends what is unknown there is over its deadline.
  bool EndsUnknown(const NodeName& node, Time now)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Uids of jobs that wait for the end of something unknown of theirs: where.
  std::map<std::string, NodeName> UnknownUids()
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Keeps unknown_nodes_, and the node's history.
  void NoteUnknown(const NodeName& node, Time now)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // reconcile.cc
  // The node says that it runs this, and no job holds a place for it.
  bool IsLeftOver(const NodeName& node, const GangStatus& gang)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  Status CommitJobs(std::map<JobName, Job> changed,
                    std::optional<AnsweredRequest> request, Time now,
                    const std::vector<const NodeRecord*>& nodes = {},
                    const std::vector<NodeName>& forget_nodes = {})
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Also takes in, or forgets, what the batch says of answered requests.
  Status Commit(StoreBatch* batch) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Apply(std::shared_ptr<const Job> job, Time now)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // What each of `nodes` should do, with one view a job, and without cluster
  // specs.
  using Wanted = std::map<NodeName, std::map<GangKey, Assignment>>;
  Wanted WantedOf(const std::set<NodeName>& nodes, Time now)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // All of tell_, who has not been told so before.
  void Tell(Time now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Touch(const JobName& job) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void TouchJobsOf(const NodeName& node) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // A coordinator that was stopped, or whose disk was stuck, heard of nobody:
  // that is nobody's silence. Called before anything is decided.
  void ForgiveAbsence(Time now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // How long a host of the job may be silent without a step.
  Duration PatienceOf(const Entry& entry) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // The same of `node`, whom its neighbours may not reach either.
  Duration PatienceWith(const Entry& entry, const NodeName& node)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // How long the node may be silent without a step; nullopt: for ever.
  std::optional<Duration> PatienceWith(const NodeName& node)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  // inquiries.cc
  // Whether its neighbours reach each silent node that has something of a job.
  void AskNeighbours(Time now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Ask(const Member& silent, Inquiry* inquiry, Time now)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Its neighbours do not reach it, and no job proved since that it lives.
  bool IsUnreachable(const NodeName& node) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  // strikes.cc
  // A stall of a native job that is past its limit, or past the deadline of a
  // step where all ranks wait and their nodes do not reach each other.
  std::optional<Stall> StallOf(Entry* entry, const JobView& view, Time now)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Which of the job's nodes are asked about which: all, or in a wide gang
  // those that its ranks name as lost.
  std::map<NodeName, std::set<NodeName>> PairsToProbe(const Job& job,
                                                      const JobView& view)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Asks the job's nodes whether they reach each other.
  void ProbePairs(Entry* entry, const Job& job, const JobView& view, Time now)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // The generation is being given up: takes down what only that moment tells.
  void NoteGivenUp(Entry* entry, const Job& next, const JobView& view, Time now)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // What is decided of the job says something of its nodes.
  void NoteOutcome(Entry* entry, const Job& next, const JobView& view, Time now)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  static void AddEvidence(const Entry& entry, Time now, JobView* view);
  void TakeStrikes(const Strikes::News& news, Time now)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Ends what is over, and asks those apart whether they reach each other.
  void ExpireStrikes(Time now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void EndMendTest(Time now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  bool MayBeAsked(const NodeName& node) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Each of whom MayBeAsked, about others. Returns the query's id.
  uint64_t AskPairs(const std::map<NodeName, std::set<NodeName>>& asked)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void TakePairAnswer(const NodeName& node, const ProbeAnswer& answer, Time now)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void ForgetPairProbe(Entry* entry) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void ShowStrikes(NodeSnapshot* node) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void KeepApart(std::vector<HostCapacity>* hosts)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  // node_commands.cc
  StatusOr<const Member*> FindMember(const NodeName& name)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Commits the node, an event on each job that has something there, and the
  // answer; then a quarantine is over, if it is to end.
  StatusOr<std::string> AnswerNode(const RequestKey& request,
                                   const NodeRecord& record,
                                   const EncodeNode& encode, Time now,
                                   bool ends_quarantine = false)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  static std::optional<AnsweredRequest> Remember(const RequestKey& request,
                                                 const std::string& response,
                                                 Time now);
  // What changed of nodes beside commands is stored in the next tick.
  void NoteNode(const NodeName& node) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void StoreNodes() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  // retention.cc
  Status CommitDeletion(const std::vector<JobName>& names,
                        std::optional<AnsweredRequest> request)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void TellDropWork(const std::string& uid) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // A few jobs, requests and nodes at a time.
  void Sweep(Time now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  // workers.cc
  int32_t LifeOf(const NodeName& node, const GangKey& gang, int32_t rank)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  // client_commands.cc
  // AlreadyExists, FailedPrecondition: another job has its name, or writes to
  // its directory.
  Status CheckNotTaken(const JobSpec& spec) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // ResourceExhausted: `owner` has too many jobs that have not ended.
  Status CheckQuota(const std::string& owner, const JobSpec& spec)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // A job that has not ended and writes where `spec` will.
  std::optional<JobName> SharesOutput(const JobSpec& spec)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  StatusOr<std::optional<std::string>> FindAnswer(const RequestKey& request)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  StatusOr<std::string> Answer(const RequestKey& request, Job job,
                               const Encode& encode, Time now)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // A command that makes one job of another, or says why not.
  StatusOr<std::string> Change(
      const RequestKey& request, const JobName& name, const MayChange& may,
      const Encode& encode,
      const std::function<StatusOr<Job>(const Job&, Time)>& change)
      ABSL_LOCKS_EXCLUDED(mu_);

  // coordinator.cc
  static std::optional<Stall> StandingOf(const Entry& entry, MonoTime now);
  Bill BillOf(const Job& job, Time now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void NoteRestart(Time now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  std::optional<Cause> TroubleOf(const Entry& entry,
                                 const JobSnapshot& snapshot, Time now)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  StatusOr<Entry*> FindEntry(const JobName& name)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  JobSnapshot SnapshotOf(const Entry& entry, Time now)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  NodeSnapshot SnapshotOf(const Member& member)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  // newcomers.cc
  struct Waiting {
    Newcomer newcomer;
    Arrival arrival;
  };
  // False: `info` is no newcomer.
  StatusOr<bool> AwaitJudgement(const NodeInfo& info, Arrival* arrival,
                                Time now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Admits or refuses the node's newcomer, if there is one and it is time.
  void JudgeNewcomer(const NodeName& node, Time now)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void JudgeNewcomers(Time now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void NoteContest(const NodeInfo& other, Time now, bool proven)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Null: the session is no newcomer's.
  Waiting* FindNewcomer(SessionId session) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  bool IsNewcomer(SessionId session) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    return FindNewcomer(session) != nullptr;
  }
  // The node's daemon is of another boot than the one that started the job's
  // ranks there, and it is a copy: steps since then prove that the ranks live.
  // The first step is waited for as long as one may take.
  bool RunsUnseen(const Entry& entry, const NodeName& node, Time now)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  // workers.cc
  // Stores what registers; a store that cannot write keeps out only nodes
  // that were never seen.
  Status AdmitNode(const NodeInfo& info, Time now)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Gives the node to the stream.
  Status Admit(const NodeInfo& info, Arrival arrival, Time now)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  StatusOr<NodeName> NodeOf(SessionId session)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  Entry* CurrentEntry(const JobName& job, Generation generation)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Takes the report in; false: its job should be decided about now.
  bool MayWait(const NodeName& node, const GangStatus& said)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void NoteStarted(Entry* entry, Time now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void TakeProgress(const RankStatus& said, Entry* entry, Time now)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Null: of a generation that is over.
  StatusOr<Rendezvous*> FindBoard(const NodeName& node, const JobName& job,
                                  Generation generation)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // ResourceExhausted: of this generation, or of all, there is too much.
  Status Charge(const JobName& job, Generation generation, size_t bytes,
                Rendezvous* board) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void ClearBoard(Entry* entry) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const CoordinatorOptions options_;
  Store* const store_;
  const SteadyClock steady_clock_;
  const Clock* const clock_ = &steady_clock_;
  WatchHub* const hub_;
  StorePoint PointLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  // Set by Load, and constant after it.
  uint64_t epoch_ = 0;
  std::string history_;
  std::vector<std::string> replaced_histories_;
  std::map<uint64_t, EpochStart> epoch_starts_;
  Generation generation_floor_ = 0;

  mutable Mutex mu_;
  int64_t version_ ABSL_GUARDED_BY(mu_) = 0;
  std::map<JobName, Entry> jobs_ ABSL_GUARDED_BY(mu_);
  // Not final; among them, those that wait for a place.
  std::set<JobName> live_ ABSL_GUARDED_BY(mu_);
  std::set<QueuePlace> queued_ ABSL_GUARDED_BY(mu_);
  // Names that stay taken.
  std::set<JobName> deleted_ ABSL_GUARDED_BY(mu_);
  // Final ones, oldest end first.
  std::set<std::pair<WallTime, JobName>> ended_ ABSL_GUARDED_BY(mu_);
  std::map<std::string, JobName> uids_ ABSL_GUARDED_BY(mu_);
  Membership members_ ABSL_GUARDED_BY(mu_);
  std::map<NodeName, NodeSoft> nodes_ ABSL_GUARDED_BY(mu_);
  std::map<SessionId, NodeName> sessions_ ABSL_GUARDED_BY(mu_);
  // Nodes that have obeyed a later store than this one, and which; at most
  // kMaxRefusedBy.
  std::map<NodeName, std::string> refused_by_ ABSL_GUARDED_BY(mu_);
  // At most one of a node.
  std::map<NodeName, Waiting> newcomers_ ABSL_GUARDED_BY(mu_);
  // Of nodes that are silent.
  std::map<NodeName, Inquiry> inquiries_ ABSL_GUARDED_BY(mu_);
  uint64_t next_probe_ ABSL_GUARDED_BY(mu_) = 1;
  Strikes strikes_ ABSL_GUARDED_BY(mu_);
  // By a query's id: whose nodes were asked.
  std::map<uint64_t, JobName> pair_probes_ ABSL_GUARDED_BY(mu_);
  // Of nodes that are apart.
  std::optional<PairProbe> mend_test_ ABSL_GUARDED_BY(mu_);
  uint64_t mend_test_id_ ABSL_GUARDED_BY(mu_) = 0;
  MonoTime last_mend_ ABSL_GUARDED_BY(mu_);
  SessionId next_session_ ABSL_GUARDED_BY(mu_) = 1;
  AnswerBook answers_ ABSL_GUARDED_BY(mu_);
  Prices prices_ ABSL_GUARDED_BY(mu_);
  // Of all boards.
  size_t rendezvous_bytes_ ABSL_GUARDED_BY(mu_) = 0;
  std::set<JobName> dirty_ ABSL_GUARDED_BY(mu_);
  std::set<NodeName> tell_ ABSL_GUARDED_BY(mu_);
  // Those with a proof.
  std::set<JobName> proven_ ABSL_GUARDED_BY(mu_);
  std::set<NodeName> unsaved_nodes_ ABSL_GUARDED_BY(mu_);
  // Nodes that run something unknown, and how much.
  std::map<NodeName, size_t> unknown_nodes_ ABSL_GUARDED_BY(mu_);
  bool capacity_changed_ ABSL_GUARDED_BY(mu_) = true;
  // When a node came, or the ranks of a job left one.
  MonoTime room_made_ ABSL_GUARDED_BY(mu_);
  // What nodes should fetch ahead, or what they say of it.
  bool ahead_changed_ ABSL_GUARDED_BY(mu_) = true;
  bool store_healthy_ ABSL_GUARDED_BY(mu_) = true;
  Status taken_over_ ABSL_GUARDED_BY(mu_);
  // When it last came to decide anything.
  std::optional<MonoTime> awake_ ABSL_GUARDED_BY(mu_);
  MonoTime last_progress_ ABSL_GUARDED_BY(mu_);
  MonoTime last_probe_ ABSL_GUARDED_BY(mu_);
  MonoTime last_sweep_ ABSL_GUARDED_BY(mu_);
  WallTime last_forget_ ABSL_GUARDED_BY(mu_){};
  int64_t commits_ ABSL_GUARDED_BY(mu_) = 0;
  int64_t failed_commits_ ABSL_GUARDED_BY(mu_) = 0;
  double commit_seconds_ ABSL_GUARDED_BY(mu_) = 0;
};

}  // namespace lockstep

#endif  // LOCKSTEP_SERVER_COORDINATOR_COORDINATOR_H_
