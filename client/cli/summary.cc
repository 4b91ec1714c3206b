#include "client/cli/summary.h"

#include <fmt/format.h>

#include <algorithm>

#include "client/cli/job_view.h"
#include "common/model/resources.h"

namespace lockstep::cli {
namespace {

// "  label        text\n", or "" without text.
std::string SummaryRow(const std::string& label, const std::string& text) {
  if (text.empty()) return "";
  return fmt::format("  {:<11} {}\n", label, text);
}

void Add(const std::string& part, std::string* text) {
  if (!text->empty()) *text += ", ";
  *text += part;
}

// Returns the chief's progress in the last attempt, or null if it never ran.
const v1::RankProgress* ChiefProgress(const v1::Job& job) {
  for (const RankView& view : LastRanks(job)) {
    if (view.rank->rank() == 0) return &view.rank->progress();
  }
  return nullptr;
}

std::string CheckpointText(const v1::Job& job) {
  if (!job.has_last_checkpoint()) return "";
  const v1::Checkpoint& c = job.last_checkpoint();
  std::string text =
      fmt::format("{} (step {}", Printable(c.path()), Grouped(c.step()));
  if (c.bytes() > 0) text += ", " + FormatBytes(c.bytes());
  return text + ")";
}

// Returns a rank's wall time per step in the last attempt, or 0 if unknown.
double SecondsPerStep(const v1::Job& job) {
  const std::vector<RankView> ranks = LastRanks(job);
  if (ranks.empty()) return 0;
  int64_t begin = 0;
  if (job.attempts_size() > 0) {
    const v1::Attempt& last = job.attempts(job.attempts_size() - 1);
    // A resumed, unfinished attempt does not yet report its first step.
    if (last.generation() != job.generation()) return 0;
    begin = last.resumed_step();
  }
  double seconds = 0;
  int64_t steps = 0;
  for (const RankView& view : ranks) {
    const v1::RankProgress& progress = view.rank->progress();
    seconds += SumOf(progress.phases());
    steps += std::max<int64_t>(0, progress.committed_step() - begin);
  }
  return steps > 0 ? seconds / static_cast<double>(steps) : 0;
}

// Values that the summary shows in another row.
bool IsShownElsewhere(const std::string& name) {
  return name == "global_batch" || name == "replicas" || name == "epochs" ||
         name == "steps_per_epoch";
}

// Formats seconds of use, with tenths for small values.
std::string Decimal(double value) {
  return value < 100 ? fmt::format("{:.1f}", value) : Number(value);
}

}  // namespace

std::string PhasesText(const v1::Job& job) {
  std::string text;
  for (const v1::PhaseDuration& phase : job.phases()) {
    Add(phase.phase() + " " + FormatDuration(ToDuration(phase.duration())),
        &text);
  }
  return text;
}

std::string ValuesText(const v1::Job& job, bool with_loss) {
  const v1::RankProgress* const chief = ChiefProgress(job);
  if (!chief) return "";
  std::string text;
  const auto add = [&](const std::string& name, double value) {
    Add(Printable(name) + " " + Number(value), &text);
  };
  // A protobuf map has no order.
  std::vector<std::pair<std::string, double>> values(chief->values().begin(),
                                                     chief->values().end());
  // The most relevant values come first.
  std::sort(values.begin(), values.end(), [](const auto& a, const auto& b) {
    const bool a_first = a.first == "accuracy";
    const bool b_first = b.first == "accuracy";
    return a_first != b_first ? a_first : a.first < b.first;
  });
  for (const auto& [name, value] : values) {
    if (!IsShownElsewhere(name)) add(name, value);
  }
  if (with_loss && !job.details_hidden() && chief->committed_step() > 0 &&
      !chief->values().count("loss")) {
    add("loss", chief->loss());
  }
  return text;
}

std::string TrainingText(const v1::Job& job) {
  std::string text;
  // The job itself knows those of checkpoints and of ended attempts.
  int64_t steps = job.committed_step();
  for (const RankView& view : LastRanks(job)) {
    steps = std::max(steps, view.rank->progress().committed_step());
  }
  const v1::RankProgress* const chief = ChiefProgress(job);
  if (steps > 0) Add(Grouped(steps) + " steps", &text);
  if (chief) {
    const auto epochs = chief->values().find("epochs");
    if (epochs != chief->values().end()) {
      Add(Number(epochs->second) + (epochs->second == 1 ? " epoch" : " epochs"),
          &text);
    }
    const auto batch = chief->values().find("global_batch");
    if (batch != chief->values().end()) {
      Add("global batch " + Number(batch->second), &text);
    }
  }
  if (job.spec().kind() == v1::JOB_KIND_NATIVE) {
    Add(Count(RankCount(job.spec()), "replica"), &text);
  }
  const Totals totals = Sum(job);
  if (totals.samples > 0) Add(Grouped(totals.samples) + " samples", &text);
  if (job.restarts() > 0) {
    Add(Count(job.restarts(), "restart"), &text);
  }
  if (job.recoveries() > 0) {
    Add(job.recoveries() == 1 ? std::string("1 recovery")
                              : fmt::format("{} recoveries", job.recoveries()),
        &text);
  }
  return text;
}

std::string StepTimeText(const v1::Job& job) {
  const Totals totals = Sum(job);
  const auto shares = PhaseShares(totals.phases);
  if (shares.empty()) return "";
  std::string split;
  for (const auto& [name, share] : shares) {
    if (share == 0 && (name == "evaluation" || name == "compile")) continue;
    Add(fmt::format("{} {}.{} %", name, share / 10, share % 10), &split);
  }
  const double seconds = SecondsPerStep(job);
  if (seconds <= 0) return split;
  return fmt::format("{} ms: {}", Number(seconds * 1e3), split);
}

std::string UsageText(const v1::Job& job) {
  const Totals totals = Sum(job);
  if (totals.rank_seconds <= 0) return "";
  std::string text = fmt::format(
      "CPU {} cores per rank ({} core-seconds), memory peak {} (rank {})",
      fmt::format("{:.2f}", totals.cpu_seconds / totals.rank_seconds),
      Decimal(totals.cpu_seconds), FormatBytes(totals.memory_peak_bytes),
      totals.memory_peak_rank);
  if (totals.gpu_utilization) {
    text += fmt::format(", GPU {:.0f} %", *totals.gpu_utilization * 100);
  } else {
    text += ", no GPU";
  }
  if (totals.network_sent_bytes) {
    text += fmt::format(", network {} out and {} in",
                        FormatBytes(*totals.network_sent_bytes),
                        FormatBytes(totals.network_received_bytes));
  }
  return text;
}

namespace {

// Returns the chief's data on the last steps if it is significant.
std::string LastStepsText(const v1::Job& job) {
  const v1::Straggler* straggler = nullptr;
  std::vector<RankView> ranks = LastRanks(job);
  for (const RankView& view : ranks) {
    if (view.rank->rank() == 0 && view.rank->progress().has_straggler()) {
      straggler = &view.rank->progress().straggler();
    }
  }
  if (straggler == nullptr || straggler->cost() < 0.01) return "";
  std::string where;
  for (const RankView& view : ranks) {
    if (view.rank->rank() == straggler->rank()) {
      where = fmt::format(" ({} on {})", TaskText(*view.task),
                          Printable(view.task->node()));
    }
  }
  return fmt::format(
      "rank {}{} came last to {} of the last {} steps and costs {:.1f} % of "
      "their time",
      straggler->rank(), where, straggler->late_steps(), straggler->steps(),
      straggler->cost() * 100);
}

}  // namespace

std::string StragglerText(const v1::Job& job) {
  if (const std::string text = LastStepsText(job); !text.empty()) return text;
  // The last rank to arrive is the one that waits least for the others. This
  // needs no common clock.
  const RankView* last = nullptr;
  double least = 0;
  double sum = 0;
  std::vector<RankView> ranks = LastRanks(job);
  std::erase_if(ranks, [](const RankView& view) {
    return SumOf(view.rank->progress().phases()) <= 0;
  });
  for (const RankView& view : ranks) {
    const v1::PhaseSeconds& p = view.rank->progress().phases();
    const double share = p.straggler_wait() / SumOf(p);
    sum += share;
    if (last && share >= least) continue;
    last = &view;
    least = share;
  }
  if (ranks.size() < 2) return "";
  const double others = (sum - least) / static_cast<double>(ranks.size() - 1);
  if (others < 0.01) return "";
  if (least > others / 2) {
    return fmt::format(
        "ranks wait for each other {:.0f} % of the time, with no "
        "single straggler",
        sum / static_cast<double>(ranks.size()) * 100);
  }
  return fmt::format(
      "the others wait for rank {} ({} on {}): {:.0f} % of their time",
      last->rank->rank(), TaskText(*last->task), Printable(last->task->node()),
      others * 100);
}

std::string BillText(const v1::Job& job) {
  if (!job.has_bill()) return "";
  const v1::Bill& bill = job.bill();
  std::string text =
      fmt::format("{} core-seconds, {} GPU-seconds",
                  Decimal(bill.core_seconds()), Decimal(bill.gpu_seconds()));
  if (bill.has_ml_units()) {
    text += fmt::format(", {:.4f} ML units", bill.ml_units());
  }
  if (bill.currency().empty()) return text + "; the site has no price table";
  return text + fmt::format(": {:.6f} {}", bill.cost(), bill.currency());
}

std::string FormatSummary(const v1::Job& job, const Style& style) {
  std::string text = fmt::format("{} {}", style.Bold(Printable(job.name())),
                                 style.State(job.state()));
  if (job.has_end_time() && job.has_create_time()) {
    text += " after " + FormatDuration(ToWallTime(job.end_time()) -
                                       ToWallTime(job.create_time()));
  }
  const std::string cause = CauseText(job, job.cause());
  if (job.state() != v1::JOB_STATE_SUCCEEDED && !cause.empty()) {
    text += ": " + cause;
  }
  text += "\n";
  text += SummaryRow("phases", PhasesText(job));
  text += SummaryRow("result", ValuesText(job));
  text += SummaryRow("training", TrainingText(job));
  // "model" first, then the rest by name.
  const auto model = job.artifacts().find("model");
  if (model != job.artifacts().end()) {
    text += SummaryRow("model", Printable(model->second));
  }
  std::vector<std::pair<std::string, std::string>> artifacts(
      job.artifacts().begin(), job.artifacts().end());
  std::sort(artifacts.begin(), artifacts.end());
  for (const auto& [name, path] : artifacts) {
    if (name != "model") text += SummaryRow(Printable(name), Printable(path));
  }
  text += SummaryRow("checkpoint", CheckpointText(job));
  text += SummaryRow("used", UsageText(job));
  text += SummaryRow("step time", StepTimeText(job));
  text += SummaryRow("bill", BillText(job));
  return text;
}

std::string FormatFailure(const v1::Job& job,
                          const std::vector<v1::LogLine>& last_lines,
                          const Style& style) {
  std::string text = style.Red("first cause: ");
  const auto failure = FirstFailure(job);
  const v1::Cause& cause = job.cause();
  if (!cause.message().empty()) {
    // It includes the place and the hint, and names a rank that left early.
    text += Printable(cause.message());
    if (!failure) text += fmt::format(" ({})", Text(cause.reason()));
  } else if (failure && cause.reason() != v1::REASON_RANK_LEFT_EARLY) {
    text += fmt::format("rank {} ({} on {}): {}", failure->rank->rank(),
                        TaskText(*failure->task), failure->task->node(),
                        DescribeExit(failure->rank->exit()));
    if (!failure->rank->exit().message().empty()) {
      text += ": " + Printable(failure->rank->exit().message());
    }
  } else {
    text += Text(cause.reason());
  }
  text += "\n";
  if (failure && !last_lines.empty()) {
    text += fmt::format("last lines of rank {}:\n", failure->rank->rank());
    for (const v1::LogLine& line : last_lines) {
      text += "  " + Printable(line.text()) + "\n";
    }
  }
  return text;
}

}  // namespace lockstep::cli
