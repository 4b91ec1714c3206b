// R5 and R6: ranks of a native job are killed, and the others stay: they hold
// their state until the rank is replaced, or train on without it.
#include <fmt/ranges.h>
#include <signal.h>

#include <algorithm>
#include <map>
#include <random>
#include <set>
#include <thread>

#include "tests/bench/cluster_rows.h"
#include "worker/task/rank_page.h"

namespace lockstep {
namespace {

namespace task = worker::task;

using std::chrono::milliseconds;

constexpr int kKills = 50;
constexpr int kStepMs = 20;
constexpr int kStateMib = 100;
constexpr char kNever[] = "1000000000";
// The processors are the ranks': a look takes a few microseconds.
constexpr auto kPollEvery = std::chrono::microseconds(500);
constexpr auto kPatience = std::chrono::seconds(60);

enum class How { kElastic, kInPlace, kRestart };

const char* Name(How how) {
  return how == How::kElastic   ? "elastic"
         : how == How::kInPlace ? "in place"
                                : "restart of the gang";
}

// A job of step_program that kills happen to.
class KilledJob {
 public:
  KilledJob(BenchCluster* bench, std::string name)
      : bench_(*bench), name_(std::move(name)) {}

  // Starts it, and waits for its 50th step.
  Status Start(int ranks, How how) {
    v1::JobSpec spec = BenchCluster::Program(
        name_, ranks, 0.5,
        {BinDir() + "/../tests/step_program", "--steps", kNever, "--step_ms",
         std::to_string(kStepMs), "--state_mib", std::to_string(kStateMib),
         "--recover", how == How::kInPlace ? "1" : "0", "--elastic",
         how == How::kElastic ? "1" : "0",
         // As one of a framework, so that its return comes later.
         "--late_ms", how == How::kElastic ? "1000" : "0"});
    if (how == How::kElastic) spec.set_elastic_min_tasks(1);
    spec.set_kind(v1::JOB_KIND_NATIVE);
    spec.set_restart_budget(1000);
    spec.set_output_directory(bench_.cluster()->layout().dir + "/" + name_);
    spec.mutable_checkpoint()->set_interval_steps(50);
    LOCKSTEP_RETURN_IF_ERROR(bench_.Submit(spec));
    LOCKSTEP_RETURN_IF_ERROR(AwaitTrue("no 50 steps", [&]() -> StatusOr<bool> {
      LOCKSTEP_RETURN_IF_ERROR(Look());
      return job_.state() == v1::JOB_STATE_RUNNING && Committed() >= 50;
    }));
    return OkStatus();
  }

  // Kills `rank`, once all ranks train. Seconds until one of the others has
  // committed its next step, after the recovery or the restart.
  StatusOr<double> Kill(int rank) {
    LOCKSTEP_RETURN_IF_ERROR(AwaitTrue("not all ranks run", [&] {
      return Look().ok() && job_.state() == v1::JOB_STATE_RUNNING && AllRun();
    }));
    const std::map<int, int64_t> before = Pids();
    const uint64_t generation = job_.generation();
    std::vector<Seen> others;
    for (const auto& [other, pid] : before) {
      if (other != rank) others.push_back({.rank = other});
    }
    const int64_t start = MonotonicNanos();
    if (kill(static_cast<pid_t>(before.at(rank)), SIGKILL) != 0) {
      return Internal("rank {} does not run", rank);
    }
    LOCKSTEP_RETURN_IF_ERROR(AwaitStep(generation, &others));
    const double seconds = SecondsSince(start);
    LOCKSTEP_RETURN_IF_ERROR(Look());
    if (job_.generation() == generation) {
      for (const auto& [other, pid] : Pids()) {
        if (other != rank && pid != before.at(other)) {
          return Internal("rank {} was restarted, too", other);
        }
      }
    }
    return seconds;
  }

  // Steps that are committed, as a rank's page says.
  int64_t Committed() const {
    int64_t most = -1;
    for (const auto& [rank, pid] : Pids()) {
      if (const auto progress = Read(PageOf(rank, job_.generation()))) {
        most = std::max<int64_t>(most, progress->last_committed);
      }
    }
    return most;
  }

  Status Look() {
    LOCKSTEP_ASSIGN_OR_RETURN(job_, bench_.client()->GetJob(name_));
    return OkStatus();
  }
  const v1::Job& job() const { return job_; }
  Status End() { return bench_.CancelAndWait(name_); }

 private:
  // What the pages of a rank have shown since a kill.
  struct Seen {
    int rank = 0;
    std::unique_ptr<task::PageReader> reader{};
    // Steps when it was seen without a communicator; -1: not yet.
    int64_t left_at = -1;
    std::unique_ptr<task::PageReader> restarted{};  // of the next generation
    int64_t restored_at = -1;
  };

  std::map<int, int64_t> Pids() const {
    std::map<int, int64_t> pids;
    for (const auto& task : job_.tasks()) {
      for (const auto& rank : task.ranks()) pids[rank.rank()] = rank.pid();
    }
    return pids;
  }

  bool AllRun() const {
    const auto pids = Pids();
    for (const auto& task : job_.tasks()) {
      for (const auto& rank : task.ranks()) {
        if (rank.away() ||
            static_cast<int32_t>(rank.recovery()) < job_.recoveries()) {
          return false;
        }
      }
    }
    return std::all_of(pids.begin(), pids.end(), [](const auto& entry) {
      return entry.second != 0 &&
             kill(static_cast<pid_t>(entry.second), 0) == 0;
    });
  }

  std::unique_ptr<task::PageReader> PageOf(int rank,
                                           uint64_t generation) const {
    std::string error;
    for (const auto& task : job_.tasks()) {
      for (const auto& status : task.ranks()) {
        if (status.rank() != rank) continue;
        return task::PageReader::Open(
            fmt::format("{}/tasks/{}.g{}/rank-{}/work/.lockstep-page",
                        bench_.cluster()->layout().DaemonDir(task.node()),
                        name_, generation, rank),
            &error);
      }
    }
    return nullptr;
  }

  static std::optional<task::RankProgress> Read(
      const std::unique_ptr<task::PageReader>& reader) {
    std::string error;
    task::RankPage page;
    if (!reader ||
        reader->ReadLast(&page, &error) != task::PageReader::Result::kOk) {
      return std::nullopt;
    }
    return page.progress;
  }

  // Until one of `others` has committed a step after all of them were seen
  // without a communicator, beyond the steps that any of them had then: the
  // others may still commit the step that was under way at the kill. Or the
  // first step of the next generation after the restored one.
  Status AwaitStep(uint64_t generation, std::vector<Seen>* others) const {
    const MonoTime end = MonotonicNow() + kPatience;
    while (MonotonicNow() < end) {
      int64_t left_at = 0;
      int64_t reached = -1;
      bool all_left = true;
      for (Seen& seen : *others) {
        if (!seen.reader) seen.reader = PageOf(seen.rank, generation);
        if (const auto progress = Read(seen.reader)) {
          const int64_t committed = progress->last_committed;
          if (progress->phase == task::RankPhase::kForming) {
            seen.left_at = std::max(seen.left_at, committed);
          }
          reached = std::max(reached, committed);
        }
        all_left = all_left && seen.left_at >= 0;
        left_at = std::max(left_at, seen.left_at);
        if (!seen.restarted) {
          seen.restarted = PageOf(seen.rank, generation + 1);
        }
        if (const auto progress = Read(seen.restarted)) {
          if (seen.restored_at < 0) seen.restored_at = progress->last_committed;
          if (progress->last_committed > seen.restored_at) return OkStatus();
        }
      }
      if (all_left && reached > left_at) return OkStatus();
      std::this_thread::sleep_for(kPollEvery);
    }
    return DeadlineExceeded("no step after a kill");
  }

  BenchCluster& bench_;
  const std::string name_;
  v1::Job job_;
};

double Mean(const std::vector<double>& values) {
  double sum = 0;
  for (const double value : values) sum += value;
  return values.empty() ? 0 : sum / static_cast<double>(values.size());
}

// A gang without a checkpoint since its last failure would have to wait, and so
// would a rank that fails within 10 s after it was back.
milliseconds PauseBefore(How how, int ranks) {
  if (how == How::kRestart) return milliseconds(2500);
  return milliseconds(how == How::kElastic ? 10'500 / ranks : 0);
}

// `count` kills of a job of `ranks`, at random moments. `samples` becomes the
// seconds of each.
Status KillAtRandom(BenchCluster* bench, int ranks, How how, int count,
                    std::vector<double>* samples) {
  KilledJob job(bench, fmt::format("job-{}-{}", static_cast<int>(how), ranks));
  LOCKSTEP_RETURN_IF_ERROR(job.Start(ranks, how));
  std::mt19937 random(1);  // NOLINT: the same moments in each run
  for (int i = 0; i < count; ++i) {
    std::this_thread::sleep_for(
        milliseconds(std::uniform_int_distribution(300, 900)(random)) +
        PauseBefore(how, ranks));
    const int rank = how == How::kElastic
                         ? i % ranks
                         : std::uniform_int_distribution(0, ranks - 1)(random);
    LOCKSTEP_ASSIGN_OR_RETURN(samples->emplace_back(), job.Kill(rank));
  }
  LOCKSTEP_RETURN_IF_ERROR(job.Look());
  fmt::print(
      "R5: {} ranks, {}: {} kills, p50 {:.0f} ms, p99 {:.0f} ms, most {:.0f} "
      "ms, mean {:.0f} ms; {} recoveries, {} restarts of the gang\n",
      ranks, Name(how), count, 1e3 * Percentile(*samples, 50),
      1e3 * Percentile(*samples, 99), 1e3 * Percentile(*samples, 100),
      1e3 * Mean(*samples), job.job().recoveries(), job.job().restarts());
  return job.End();
}

}  // namespace

// From a SIGKILL to the next step of the others: R5-2 and R5-4 of a job that
// recovers in place, beside the same job that restarts as a whole from its
// checkpoint; R5-2-elastic and R5-4-elastic without the rank that was killed,
// beside the job that waits for it.
Status RunR5(RowRun* run) {
  LOCKSTEP_RETURN_IF_ERROR(run->Start(2));
  const int count = run->rounds > 0 ? run->rounds : kKills;
  const uint64_t bytes = static_cast<uint64_t>(kStateMib) << 20;
  for (const int ranks : {2, 4}) {
    const std::string in_place = fmt::format("R5-{}", ranks);
    const std::string elastic = in_place + "-elastic";
    const auto wanted = [&](const std::string& id) {
      return id.find(run->only) != std::string::npos;
    };
    std::set<How> hows;
    if (wanted(elastic)) hows.insert({How::kElastic, How::kInPlace});
    if (wanted(in_place)) hows.insert({How::kInPlace, How::kRestart});
    std::map<How, std::vector<std::vector<double>>> seconds;
    for (const How how : hows) {
      std::vector<double> samples;
      const int kills = how == How::kRestart ? count / 5 + 2 : count;
      LOCKSTEP_RETURN_IF_ERROR(
          KillAtRandom(run->ours.get(), ranks, how, kills, &samples));
      for (const double sample : samples) seconds[how].push_back({sample});
    }
    if (wanted(elastic)) {
      run->sides = {seconds[How::kElastic], seconds[How::kInPlace]};
      run->Report(
          {elastic, "the others wait for the rank", 0, 1, ranks, bytes});
    }
    if (wanted(in_place)) {
      run->sides = {seconds[How::kInPlace], seconds[How::kRestart]};
      run->Report({in_place, "restart of the gang", 0, 1, ranks, bytes});
    }
  }
  return OkStatus();
}

// Goodput with a kill every 15 s for 10 minutes (--rounds: kills).
Status RunR6(RowRun* run) {
  LOCKSTEP_RETURN_IF_ERROR(run->Start(2));
  const int kills = run->rounds > 0 ? run->rounds : 40;
  KilledJob job(run->ours.get(), "goodput");
  LOCKSTEP_RETURN_IF_ERROR(job.Start(2, How::kInPlace));
  const auto seconds_per_step = [&]() -> double {
    const int64_t first = job.Committed();
    const int64_t start = MonotonicNanos();
    std::this_thread::sleep_for(std::chrono::seconds(10));
    return SecondsSince(start) / static_cast<double>(job.Committed() - first);
  };
  const double step = seconds_per_step();
  const int64_t first = job.Committed();
  const int64_t start = MonotonicNanos();
  for (int i = 0; i < kills; ++i) {
    const MonoTime next = MonotonicNow() + std::chrono::seconds(15);
    LOCKSTEP_RETURN_IF_ERROR(job.Kill(i % 2).status());
    std::this_thread::sleep_until(next);
  }
  const double wall = SecondsSince(start);
  const double good = static_cast<double>(job.Committed() - first) * step;
  LOCKSTEP_RETURN_IF_ERROR(job.Look());
  fmt::print(
      "R6: {} kills, one every 15 s, in {:.0f} s: goodput {:.4f} ({} steps of "
      "{:.2f} ms; {} recoveries, {} restarts of the gang)\n",
      kills, wall, good / wall, job.Committed() - first, 1e3 * step,
      job.job().recoveries(), job.job().restarts());
  return job.End();
}

}  // namespace lockstep
