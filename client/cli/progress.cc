#include "client/cli/progress.h"

#include <fmt/format.h>

#include <algorithm>

#include "client/cli/live_output.h"
#include "client/lib/client.h"

namespace lockstep::cli {
namespace {

constexpr Duration kPlainInterval = std::chrono::seconds(10);
// For a line that the program redraws.
constexpr Duration kRedrawInterval = std::chrono::seconds(1);
// A shorter phase gets a line only when it ends.
constexpr Duration kNewsDelay = std::chrono::seconds(1);
constexpr int kBarWidth = 24;
constexpr int kLeastBarWidth = 8;

// Returns 0..1, or a negative number if unknown.
double Done(const v1::RankProgress& chief) {
  if (chief.total_steps() <= 0) return -1;
  return std::clamp(static_cast<double>(chief.committed_step()) /
                        static_cast<double>(chief.total_steps()),
                    0.0, 1.0);
}

std::string PhaseLine(const std::string& phase, const std::string& rest) {
  return fmt::format("  {:<11} {}", phase, rest);
}

}  // namespace

std::string ProgressText(const v1::JobProgress& progress, bool with_loss) {
  const v1::RankProgress& chief = progress.chief();
  std::string text =
      "step " + Grouped(std::max<int64_t>(0, chief.committed_step()));
  if (const double done = Done(chief); done >= 0) {
    text +=
        fmt::format("/{} ({:.0f} %)", Grouped(chief.total_steps()), done * 100);
  }
  if (progress.samples_per_second() > 0) {
    text +=
        fmt::format("  {} samples/s", Number(progress.samples_per_second()));
  }
  if (with_loss && chief.committed_step() > 0) {
    text += fmt::format("  loss {}", Number(chief.loss()));
  }
  if (progress.has_eta()) {
    text += "  eta " + FormatDuration(ToDuration(progress.eta()));
  }
  return text;
}

std::string ProgressBar(const v1::JobProgress& progress, int columns,
                        const std::string& note) {
  std::string text = ProgressText(progress) + note;
  const double done = Done(progress.chief());
  // "[] " and the terminal's last column, where some terminals wrap.
  const int room = columns - static_cast<int>(text.size()) - 4;
  const int width = std::min(room, kBarWidth);
  if (done >= 0 && width >= kLeastBarWidth) {
    std::string bar(static_cast<size_t>(done * width), '=');
    if (static_cast<int>(bar.size()) < width) bar += '>';
    bar.resize(width, ' ');
    text = fmt::format("[{}] {}", bar, text);
  }
  // A wrapped line could not be overwritten.
  if (static_cast<int>(text.size()) >= columns) text.resize(columns - 1);
  return text;
}

std::string FollowPrinter::Line(const std::string& text) const {
  return (is_tty_ ? kClearLine : "") + text + "\n";
}

std::string FollowPrinter::Note(const std::string& line) { return Line(line); }

std::string FollowPrinter::Finish() { return is_tty_ ? kClearLine : ""; }

std::string FollowPrinter::LiveText(Time now) const {
  if (job_->state() == v1::JOB_STATE_RUNNING && progress_ &&
      progress_->chief().committed_step() > 0) {
    const Duration age = now.mono - progress_time_;
    const std::string note =
        age < kStaleProgress ? "" : fmt::format("  (as of {} ago)", Age(age));
    return is_tty_ ? ProgressBar(*progress_, columns_, note)
                   : ProgressText(*progress_) + note;
  }
  const Duration elapsed =
      std::max(Duration::zero(), now.wall - ToWallTime(job_->state_time()));
  std::string text =
      PhaseLine(PhaseText(job_->state()), FormatDuration(elapsed));
  if (!job_->cause().message().empty() &&
      job_->state() != v1::JOB_STATE_RUNNING) {
    text += "  " + Printable(job_->cause().message());
  }
  if (job_->state() == v1::JOB_STATE_RUNNING && !program_line_.empty()) {
    text += "  " + program_line_;
  }
  return is_tty_ ? Clip(text, static_cast<size_t>(std::max(columns_, 2) - 1))
                 : text;
}

void FollowPrinter::SetProgramLine(const std::string& line) {
  program_line_ = RedrawableText(line, style_.color);
}

std::string FollowPrinter::OnJob(const v1::Job& job, Time now) {
  std::string out;
  // A new reason to wait counts as a change: "other jobs hold what it needs".
  if (!job_ || job_->state() != job.state() ||
      job_->generation() != job.generation() ||
      job_->cause().message() != job.cause().message()) {
    changed_ = true;
  }
  job_ = job;
  const std::string current = PhaseText(job.state());
  for (const v1::PhaseDuration& phase : job.phases()) {
    const Duration total = ToDuration(phase.duration());
    Duration& printed = printed_[phase.phase()];
    // The current phase has not ended.
    if (phase.phase() == current || total <= printed) continue;
    out += Line(PhaseLine(phase.phase(), FormatDuration(total - printed)));
    printed = total;
  }
  for (; printed_attempts_ < job.attempts_size(); ++printed_attempts_) {
    const v1::Attempt& attempt = job.attempts(printed_attempts_);
    if (IsFinalState(job.state()) || attempt.end_cause().message().empty()) {
      continue;
    }
    out += Line(
        style_.Bold(fmt::format("  attempt {} ended: {}", attempt.ordinal(),
                                Printable(attempt.end_cause().message()))));
    progress_.reset();
  }
  if (IsFinalState(job.state())) return out;
  return out + OnTick(now);
}

std::string FollowPrinter::OnProgress(const v1::JobProgress& progress,
                                      Time now) {
  progress_ = progress;
  progress_time_ = now.mono;
  return OnTick(now);
}

std::string FollowPrinter::OnTick(Time now) {
  if (!job_ || IsFinalState(job_->state())) return "";
  if (is_tty_) return kClearLine + LiveText(now);
  const bool redrawn = job_->state() == v1::JOB_STATE_RUNNING &&
                       program_line_ != shown_program_line_;
  const bool due =
      last_plain_ &&
      now.mono - *last_plain_ >= (redrawn ? kRedrawInterval : kPlainInterval);
  const bool news =
      changed_ && now.wall - ToWallTime(job_->state_time()) >= kNewsDelay;
  if (!due && !news) return "";
  changed_ = false;
  last_plain_ = now.mono;
  shown_program_line_ = program_line_;
  return LiveText(now) + "\n";
}

}  // namespace lockstep::cli
