// Detects jobs that hang, from the status pages of their ranks. Pure.
//
// A step ends only when every rank has arrived in its last all-reduce. So if
// some ranks wait there, and another rank's page has not changed for the stall
// deadline D, that rank is frozen: stopped, or stuck outside the collective. It
// may also have been stopped within the all-reduce of the step before, which
// the others have left.
//   D = max(5 s, 4 x p99 of the last 100 steps); 10 min for the first step of
//   a generation, and 1 min until ten steps were seen.
// Ranks that say for whom they wait (awaited_ranks.h) name that rank
// themselves, once they have said the same for half of D. Bytes that flow
// change what they say. A false alarm costs a restart, so none is raised
//   - while a rank does work that may take long: a checkpoint, an evaluation,
//     forming, or anything before the first and after the last step;
//   - while a rank's page is not reported: membership.h handles silent hosts;
//   - while ranks are replaced (recovery.h);
//   - if no rank waits: then all ranks are equally slow;
//   - before three times D, and half a minute, if all ranks wait in the same
//     step or for each other: because of the network between them (after D the
//     coordinator asks their nodes whether it is the network), or of one rank
//     that was stopped within the all-reduce, where ranks do not say for whom
//     they wait;
//   - before six times D, and a minute, for a rank that uses the CPU (more than
//     2 % of one core over the last two seconds) or waits for input: it may be
//     slow but healthy. That of a process that is not responsive may not: it is
//     given up once it has said nothing for D.
// Of a program the worker daemons judge each rank by its signs of progress
// (worker/agent/progress/progress_watch.h). The ranks with the best source of
// signs speak for the others, which may print nothing or wait in a server's
// loop: the job has stalled when each of them is past its own limit. While one
// of them goes on, or says that it saves or evaluates, others may wait for it.
// Ranks that have ended are not looked at; of a node that is silent nothing is
// known.
// Of native ranks the stall is announced long before it is acted on: from half
// of D on, then from half of the limit, the rank counts as stalled, and users
// see when the generation will be stopped. Where ranks say for whom they wait
// it is announced once they have named one, or else after D. The announced
// limit applies to the whole gang, because a rank other than the named one may
// stall, too. It may grow when the rank begins to use the CPU, and it never
// shrinks until a rank makes progress. JobSpec::hang says what follows: a
// restart (of native jobs by default), a warning alone (of programs), or
// nothing at all.
#ifndef LOCKSTEP_SERVER_CORE_STALL_H_
#define LOCKSTEP_SERVER_CORE_STALL_H_

#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>

#include "server/core/awaited_ranks.h"
#include "server/core/job.h"

namespace lockstep::server {

struct StallOptions {
  Duration least = std::chrono::seconds(5);
  Duration first_step = std::chrono::minutes(10);
  Duration early = std::chrono::minutes(1);
  int factor = 4;
  int patient_factor = 6;
  Duration patient_least = std::chrono::minutes(1);
  int all_factor = 3;
  Duration all_least = std::chrono::seconds(30);
  // A page that is older than this is not evidence.
  Duration fresh = std::chrono::seconds(3);
  // After this time a daemon calls a process not responsive.
  Duration silence = std::chrono::seconds(3);
  // Ranks have said for whom they wait, or nothing any more, and it was
  // reported.
  Duration settling = std::chrono::seconds(4);
};

struct Stall {
  // -1 if all ranks wait.
  int32_t rank = 0;
  std::string phase;
  int64_t step = 0;
  // How long its page has not changed.
  Duration still{};
  Duration deadline{};
  // The generation is stopped when `still` reaches this.
  Duration limit{};
  // Number of ranks that are seen to wait for it.
  int32_t waiting = 0;
  // Of a program: what had shown its progress, and the newest step of its log.
  SignSource source = SignSource::kNone;
  std::optional<int64_t> log_step = std::nullopt;
};

// What happens to a job that has stalled.
HangPolicy HangPolicyOf(const JobSpec& spec);

// "rank 1 (worker 0 on b) stands still for 12 s in compute of step 7, and 1
// other rank waits for it; the gang is stopped and started again after 20 s at
// the earliest". If all ranks wait, it adds that the deadline applies if their
// nodes do not reach each other. Of a program that has not joined: "rank 0
// (chief on a) shows no progress for 63 s: its log names no new step after 120;
// the limit is 60 s; it runs on, as its --hang warn says". `stall` belongs to
// `job`.
std::string Describe(const Job& job, const Stall& stall);
// The cause of a generation that is ended for the stall.
Cause CauseOf(const Job& job, const Stall& stall);

class StallWatch {
 public:
  explicit StallWatch(StallOptions options = {}) : options_(options) {}

  // A recovery is under way (recovery.h): how long the ranks have stood still,
  // and how long steps take, begins anew.
  void Restart(MonoTime now);
  // Discards all data of older generations.
  void Reset(Generation generation, JobKind kind = JobKind::kNative);
  // `changed`: when the rank changed its page, as its node says. Absent: only
  // the reports tell.
  void Take(const RankStatus& report, MonoTime now,
            const std::optional<MonoTime>& changed = std::nullopt);

  // The stall deadline D.
  Duration Deadline() const;
  // The ranks of a generation, those outside the group included.
  struct Ranks {
    int32_t count = 0;
    // Of a program: those that have ended, or are away.
    std::set<int32_t> ended = {};
    // Those that are away (elastic.h): the others do not wait for them.
    std::set<int32_t> away = {};
  };
  // Returns the stalled rank that is nearest to its limit or past it.
  std::optional<Stall> StalledRank(const Ranks& ranks, MonoTime now) const;
  // Returns the same, but only past its limit: the rank is frozen.
  std::optional<Stall> Check(const Ranks& ranks, MonoTime now) const;
  // Records that users were shown `stall` and its limit.
  void RecordAnnounced(const Stall& stall);

 private:
  struct Page {
    RankProgress progress;
    // When the page last changed.
    MonoTime since;
    MonoTime reported;
    // When its CollectiveWait last changed, in a process that is responsive.
    MonoTime waits_since;
    // Since when it is not responsive.
    std::optional<MonoTime> silent_since = std::nullopt;
    // CPU time as it was reported, over the last kCpuWindow.
    struct CpuSample {
      MonoTime time;
      double seconds = 0;
    };
    std::deque<CpuSample> cpu;

    bool UsesCpu() const;
    // Its process is stopped, or gets no processor. One that has left its
    // session says nothing, either.
    bool IsSilent() const;
    // It may be slow but healthy.
    bool IsBusy() const;
  };
  using Standing = std::map<int32_t, const Page*>;

  // The pages that count, if all of them have stood still for half of D, and
  // none may for a good reason.
  std::optional<Standing> Standstill(const Ranks& ranks, MonoTime now) const;
  // The newest step in which a rank waits or works.
  struct Front {
    int64_t step = 0;
    // For how long all have stood still.
    Duration shortest{};
    // Those that wait in the all-reduce of the step.
    std::set<int32_t> waiting = {};
  };
  static Front FrontOf(const Standing& standing, MonoTime now);
  // The stall of all ranks together, or of `rank`.
  Stall StallOfAll(const Standing& standing, const Front& front) const;
  Stall StallOf(int32_t rank, const Page& page, const Front& front,
                MonoTime now) const;
  // That of the one of `ranks` that is nearest to its limit; absent: none are.
  std::optional<Stall> NearestToLimit(const Standing& standing,
                                      const std::set<int32_t>& ranks,
                                      const Front& front, MonoTime now) const;
  // By where the ranks are.
  std::optional<Stall> StalledByPages(const Standing& standing,
                                      const Front& front, MonoTime now) const;
  // By what the ranks say, which all do.
  std::optional<Stall> StalledByWaits(const Standing& standing,
                                      const Front& front, MonoTime now) const;
  // How many wait for the rank that they name, and its limit.
  void CompleteNamed(const CollectiveWaits& waits, const Standing& standing,
                     const Front& front, Stall* named) const;
  // The ranks of a program that speak for it, if all of them are past their
  // limits.
  std::optional<Standing> StalledSpeakers(const Ranks& ranks,
                                          MonoTime now) const;
  std::optional<Stall> StalledProgram(const Ranks& ranks, MonoTime now) const;

  const StallOptions options_;
  Generation generation_ = 0;
  JobKind kind_ = JobKind::kNative;
  std::map<int32_t, Page> pages_;
  // The largest limit announced since a rank last made progress; 0 if none.
  Duration announced_{};
  // Durations of the newest steps, at the resolution of the reports.
  std::deque<Duration> steps_;
  int64_t committed_ = -1;
  // When `committed_` rose; nullopt: not yet in this generation.
  std::optional<MonoTime> stepped_;
};

}  // namespace lockstep::server

#endif  // LOCKSTEP_SERVER_CORE_STALL_H_
