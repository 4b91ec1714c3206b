// The ranks of native jobs: they form, take steps together by the real
// StepController, save, stop when they are told to, and lose each other.
#ifndef LOCKSTEP_TESTS_SIMULATION_TRAINING_H_
#define LOCKSTEP_TESTS_SIMULATION_TRAINING_H_

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "common/model/assignment.h"
#include "tests/simulation/bug.h"
#include "tests/simulation/checker.h"
#include "tests/simulation/timeline.h"
#include "worker/agent/core/agent_core.h"
#include "worker/runtime/step_controller.h"

namespace lockstep::simulation {

// What a rank can do on its host.
class RankHost {
 public:
  using News = std::function<void(worker::agent::AgentCore*, Time,
                                  worker::agent::Actions*)>;
  virtual ~RankHost() = default;
  virtual int32_t index() const = 0;
  // To the daemon, as soon as there is one.
  virtual void Tell(int64_t pid, News news) = 0;
  virtual void End(int64_t pid, ExitStatus exit) = 0;
};

// A shared file system: what was synced stays, what was not goes with its host.
class SharedDisk {
 public:
  struct Entry {
    SavedState saved;
    // Parts that are not synced, and their hosts.
    std::map<int32_t, int32_t> unsynced;
    bool complete = false;
  };
  using Key = std::pair<Generation, int64_t>;

  Entry& At(const std::string& uid, const Key& key) {
    return jobs_[uid].entries[key];
  }
  // The newest complete one that `lineage` allows; null: none.
  const SavedState* FindResume(const std::string& uid,
                               const std::vector<LineageEntry>& lineage,
                               bool older) const;
  // Only the newest generation may write. False: a newer one does.
  bool TakeOver(const std::string& uid, Generation generation);
  void LosePower(int32_t node);

 private:
  struct Job {
    std::map<Key, Entry> entries;
    Generation newest = 0;
  };
  std::map<std::string, Job> jobs_;
};

// Whether the job's ranks stay when others are lost.
bool IsRecoverable(const std::string& uid);
// Whether they can train while others are away. Of a job that may be smaller,
// all can or none.
bool IsElastic(const std::string& uid);

class Training {
 public:
  // All are borrowed.
  Training(Bug bug, Timeline* time, Story* story, Checker* checker)
      : bug_(bug), time_(time), story_(story), checker_(checker) {}

  // A process of a native rank has started on `host`.
  void Start(int64_t pid, RankHost* host, const Assignment& assignment,
             int32_t rank);
  // Its gang runs.
  void OnGo(int64_t pid);
  void OnDirective(int64_t pid, const Directive& directive);
  // Its communicator is over, and that of `recovery` is formed, of all ranks
  // but `away`.
  void OnRecover(int64_t pid, uint32_t recovery,
                 const std::vector<int32_t>& away);
  // Tells the next daemon what the last one may have lost.
  void Repeat(int64_t pid);
  // The process is gone.
  void OnDead(int64_t pid, bool well);

  RankProgress ProgressOf(int64_t pid) const;

  // ---- Faults ----
  void Freeze(int64_t pid, Duration time);
  void FailCheckpoint(int64_t pid);
  void CutData(int32_t a, int32_t b, Duration time);
  bool Reaches(int32_t a, int32_t b) const;
  SharedDisk* disk() { return &disk_; }

 private:
  using GangId = std::pair<std::string, Generation>;
  struct Member {
    RankHost* host = nullptr;
    GangId gang;
    int32_t rank = 0;
    bool go = false;
    std::vector<Directive> directives;
    std::optional<worker::runtime::StepController> controller;
    uint64_t state = 0;
    // Added to the number of each sample: not 0 with a bug.
    uint64_t sample_error = 0;
    bool stopping = false;
    bool saved_last = false;
    int publishing = 0;
    bool cannot_save = false;
    MonoTime frozen_until{};
    RankProgress progress;
    // The communicator that it is a member of, or will be, see `parked`.
    uint32_t recovery = 0;
    bool parked = false;
    // What the daemon was told last: `parked` of RankNews, and how it joined.
    uint32_t told_parked = 0;
    std::optional<worker::agent::RankJoin> joined;
    // The ranks that are away in `recovery`.
    std::set<int32_t> away;
    // With a bug: its state is that of before it was away.
    bool kept = false;

    bool IsAway() const { return away.contains(rank); }
  };
  struct Gang {
    JobName job;
    // Of rank 0's assignment.
    GangSpec spec;
    int32_t world_size = 1;
    // By rank.
    std::map<int32_t, int64_t> pids;
    std::map<int32_t, worker::runtime::ControlWords> words;
    uint64_t rounds = 0;
    bool resumed = false;
    // The newest communicator, and its ranks.
    uint32_t formed = 0;
    std::set<int32_t> members;
  };

  Member* Find(int64_t pid);
  Gang& GangOf(const Member& member) { return gangs_.at(member.gang); }
  // Speaks for all ranks, and writes what they save.
  bool IsChief(const Member& member) {
    return member.rank == *GangOf(member).members.begin();
  }
  // Does it then, if the process lives, and not while it is frozen.
  void Later(int64_t pid, Duration delay, std::function<void(Member*)> what);
  // As Later, but not if it has left its communicator by then.
  void Together(int64_t pid, Duration delay, std::function<void(Member*)> what);
  Duration Pause(const Member& member, Duration least, Duration most,
                 uint64_t what) const;
  void Resume(int64_t pid, Member* chief);
  // All members of a gang that recovers notice that its communicator is broken.
  void ParkAll(const Gang& gang);
  void Park(int64_t pid, Member* member);
  // Begins its recovery: forms, or waits for the next one if it is away.
  void Enter(int64_t pid, Member* member);
  // Forms the communicator of `recovery` if all its members are there for it.
  void Form(const GangId& id, uint32_t recovery);
  // Gives all members the state of those that are the furthest.
  void Level(const GangId& id, uint32_t recovery);
  void Rejoin(int64_t pid, Member* member, uint32_t recovery);
  void BeginAt(Member* member, Generation generation, const SavedState* from);
  // The others have formed a communicator without it.
  bool HaveLeft(const Member& member) {
    return member.recovery < GangOf(member).formed;
  }
  // The next step, round or end.
  void Go(int64_t pid, Member* member);
  void Contribute(int64_t pid, Member* member,
                  const StatusOr<worker::runtime::ControlWords>& words);
  void Reduce(const GangId& id, uint64_t round);
  void Receive(int64_t pid, Member* member,
               const worker::runtime::ControlWords& sum);
  void Follow(int64_t pid, Member* member,
              const worker::runtime::StepOrders& orders);
  void Save(int64_t pid, Member* member,
            const worker::runtime::CheckpointOrder& order);
  void Publish(int64_t pid, Member* member,
               const worker::runtime::CheckpointOrder& order);

  const Bug bug_;
  Timeline* const time_;
  Story* const story_;
  Checker* const checker_;
  SharedDisk disk_;
  std::map<int64_t, Member> members_;
  std::map<GangId, Gang> gangs_;
  std::map<std::pair<int32_t, int32_t>, MonoTime> cut_until_;
};

}  // namespace lockstep::simulation

#endif  // LOCKSTEP_TESTS_SIMULATION_TRAINING_H_
