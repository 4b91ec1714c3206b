#include "client/cli/job_view.h"

#include <fmt/format.h>
#include <string.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <tuple>

#include "client/cli/text.h"

namespace lockstep::cli {
namespace {

using TaskList = google::protobuf::RepeatedPtrField<v1::TaskStatus>;

void Append(const TaskList& tasks, int32_t attempt,
            std::vector<RankView>* views) {
  for (const v1::TaskStatus& task : tasks) {
    for (const v1::RankStatus& rank : task.ranks()) {
      views->push_back({&task, &rank, attempt});
    }
  }
}

bool LastAttemptEnded(const v1::Job& job) {
  return job.attempts_size() > 0 &&
         job.attempts(job.attempts_size() - 1).generation() ==
             job.generation() &&
         job.attempts(job.attempts_size() - 1).tasks_size() > 0;
}

std::vector<std::pair<std::string, double>> Phases(const v1::PhaseSeconds& p) {
  return {{"compute", p.compute()},
          {"all-reduce", p.allreduce()},
          {"straggler wait", p.straggler_wait()},
          {"input", p.input()},
          {"optimizer", p.optimizer()},
          {"checkpoint", p.checkpoint()},
          {"evaluation", p.evaluation()},
          {"compile", p.compile()},
          {"other", p.other()}};
}

}  // namespace

std::vector<RankView> LastRanks(const v1::Job& job) {
  std::vector<RankView> views;
  if (LastAttemptEnded(job)) {
    const v1::Attempt& last = job.attempts(job.attempts_size() - 1);
    Append(last.tasks(), last.ordinal(), &views);
  } else {
    Append(job.tasks(), job.attempt(), &views);
  }
  return views;
}

std::vector<RankView> AllRanks(const v1::Job& job) {
  std::vector<RankView> views;
  for (const v1::Attempt& attempt : job.attempts()) {
    Append(attempt.tasks(), attempt.ordinal(), &views);
  }
  if (!LastAttemptEnded(job)) Append(job.tasks(), job.attempt(), &views);
  return views;
}

bool AttemptGoesOn(const v1::Job& job) {
  return job.state() >= v1::JOB_STATE_PREPARING &&
         job.state() <= v1::JOB_STATE_FINISHING && job.generation() > 0 &&
         std::none_of(job.attempts().begin(), job.attempts().end(),
                      [&](const v1::Attempt& attempt) {
                        return attempt.generation() == job.generation();
                      });
}

std::optional<google::protobuf::Timestamp> CurrentStart(const v1::Job& job) {
  for (const v1::Event& event : job.events()) {
    if (event.generation() == job.generation() && event.has_time()) {
      return event.time();
    }
  }
  if (!job.has_state_time()) return std::nullopt;
  return job.state_time();
}

Totals Sum(const v1::Job& job) {
  Totals t;
  double gpu_seconds = 0;
  double gpu_busy = 0;
  for (const RankView& view : AllRanks(job)) {
    const v1::RankProgress& progress = view.rank->progress();
    const v1::PhaseSeconds& p = progress.phases();
    t.phases.set_input(t.phases.input() + p.input());
    t.phases.set_compute(t.phases.compute() + p.compute());
    t.phases.set_allreduce(t.phases.allreduce() + p.allreduce());
    t.phases.set_straggler_wait(t.phases.straggler_wait() + p.straggler_wait());
    t.phases.set_optimizer(t.phases.optimizer() + p.optimizer());
    t.phases.set_checkpoint(t.phases.checkpoint() + p.checkpoint());
    t.phases.set_evaluation(t.phases.evaluation() + p.evaluation());
    t.phases.set_other(t.phases.other() + p.other());
    t.phases.set_compile(t.phases.compile() + p.compile());
    t.samples += progress.samples();
    const v1::Usage& usage = view.rank->usage();
    t.cpu_seconds += usage.cpu_seconds();
    t.rank_seconds += usage.seconds();
    if (usage.memory_peak_bytes() > t.memory_peak_bytes) {
      t.memory_peak_bytes = usage.memory_peak_bytes();
      t.memory_peak_rank = view.rank->rank();
    }
    if (usage.has_network_sent_bytes()) {
      t.network_sent_bytes =
          t.network_sent_bytes.value_or(0) + usage.network_sent_bytes();
      t.network_received_bytes += usage.network_received_bytes();
    }
    if (usage.has_gpu_utilization()) {
      gpu_seconds += usage.seconds();
      gpu_busy += usage.gpu_utilization() * usage.seconds();
    }
  }
  if (gpu_seconds > 0) t.gpu_utilization = gpu_busy / gpu_seconds;
  return t;
}

double SumOf(const v1::PhaseSeconds& p) {
  double sum = 0;
  for (const auto& [name, seconds] : Phases(p)) sum += seconds;
  return sum;
}

std::vector<std::pair<std::string, int>> PhaseShares(
    const v1::PhaseSeconds& p) {
  const auto phases = Phases(p);
  const double sum = SumOf(p);
  if (!(sum > 0) || !std::isfinite(sum)) return {};
  std::vector<std::pair<std::string, int>> shares;
  std::vector<double> rests;
  int given = 0;
  for (const auto& [name, seconds] : phases) {
    const double exact = std::clamp(seconds / sum, 0.0, 1.0) * 1000;
    shares.emplace_back(name, static_cast<int>(exact));
    rests.push_back(exact - std::floor(exact));
    given += shares.back().second;
  }
  std::vector<size_t> order(shares.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return rests[a] > rests[b]; });
  for (size_t i = 0; given < 1000; i = (i + 1) % order.size(), ++given) {
    ++shares[order[i]].second;
  }
  return shares;
}

std::optional<RankView> FirstFailure(const v1::Job& job) {
  std::optional<RankView> first;
  const auto key = [](const RankView& view) {
    const auto& time = view.rank->exit().end_time();
    return std::tuple(time.seconds(), time.nanos(), view.rank->rank());
  };
  for (const RankView& view : LastRanks(job)) {
    if (!view.rank->has_exit()) continue;
    const v1::ExitStatus& exit = view.rank->exit();
    const bool good =
        exit.how_case() == v1::ExitStatus::HOW_NOT_SET ||
        (exit.how_case() == v1::ExitStatus::kCode && exit.code() == 0);
    if (good || exit.victim()) continue;
    if (!first || key(view) < key(*first)) first = view;
  }
  return first;
}

std::vector<std::pair<std::string, Duration>> PhasesUntil(const v1::Job& job,
                                                          WallTime now) {
  std::vector<std::pair<std::string, Duration>> phases;
  for (const v1::PhaseDuration& phase : job.phases()) {
    phases.emplace_back(phase.phase(), ToDuration(phase.duration()));
  }
  const std::string current = PhaseText(job.state());
  if (current.empty() || !job.has_state_time()) return phases;
  const Duration since =
      std::max(Duration::zero(), now - ToWallTime(job.state_time()));
  const auto known =
      std::find_if(phases.begin(), phases.end(),
                   [&](const auto& phase) { return phase.first == current; });
  if (known == phases.end()) {
    phases.emplace_back(current, since);
  } else {
    known->second += since;
  }
  return phases;
}

std::string RanText(const v1::Job& job, WallTime now) {
  if (!job.has_start_time()) return "-";
  Duration ran{};
  for (const auto& [phase, took] : PhasesUntil(job, now)) {
    if (phase == "running") ran += took;
  }
  return Age(ran);
}

int ExitCodeOf(const v1::Job& job) {
  if (job.state() == v1::JOB_STATE_SUCCEEDED) return 0;
  if (job.state() != v1::JOB_STATE_FAILED) return 1;
  return job.exit_code() > 0 && job.exit_code() < 256 ? job.exit_code() : 1;
}

std::string CauseText(const v1::Job& job, const v1::Cause& cause) {
  if (!cause.message().empty() || !job.details_hidden() ||
      cause.reason() == v1::REASON_UNSPECIFIED ||
      Text(cause.reason()) == Text(job.state())) {
    return Printable(cause.message());
  }
  return Text(cause.reason());
}

std::string HiddenText(const v1::Job& job) {
  if (!job.details_hidden()) return "";
  return fmt::format(
      "arguments, environment, labels, messages, paths and measurements: "
      "only {} and admins see them, unless the site sets visibility: cluster",
      Printable(job.owner()));
}

std::string DescribeExit(const v1::ExitStatus& exit) {
  std::string text;
  switch (exit.how_case()) {
    case v1::ExitStatus::kCode:
      text = fmt::format("exit code {}", exit.code());
      break;
    case v1::ExitStatus::kSignal: {
      const char* const name = sigdescr_np(exit.signal());
      text = fmt::format("signal {}{}", exit.signal(),
                         name ? fmt::format(" ({})", name) : "");
      break;
    }
    case v1::ExitStatus::kExecErrno: {
      const char* const name = strerrordesc_np(exit.exec_errno());
      text = fmt::format("could not be started: {}",
                         name ? name : "unknown error");
      break;
    }
    default:
      text = "ended";
  }
  if (exit.out_of_memory()) text += ", out of memory";
  if (exit.victim()) text += ", not the cause";
  return text;
}

std::string TaskText(const v1::TaskStatus& task) {
  return fmt::format("{} {}", Text(task.type()), task.index());
}

int TaskCount(const v1::JobSpec& spec) {
  int count = 0;
  for (const v1::RoleSpec& role : spec.roles()) count += role.count();
  return count;
}

int RankCount(const v1::JobSpec& spec) {
  int count = 0;
  for (const v1::RoleSpec& role : spec.roles()) {
    count += role.count() * std::max(1, role.ranks_per_task());
  }
  return count;
}

}  // namespace lockstep::cli
