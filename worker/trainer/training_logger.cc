#include "worker/trainer/training_logger.h"

#include <fmt/format.h>

#include <cstdio>

namespace lockstep::worker::trainer {
namespace {

// Number of skipped steps that are logged individually.
constexpr int kLoggedSkips = 5;

}  // namespace

TrainingLogger::TrainingLogger(runtime::Session* session,
                               const TrainingLength& plan, int64_t log_every)
    : session_(session), plan_(plan), log_every_(log_every) {}

void TrainingLogger::Print(const std::string& line) {
  if (!session_->chief()) return;
  fmt::print("{}\n", line);
  std::fflush(stdout);
}

void TrainingLogger::Begin(const std::string& what,
                           const TrainProgress& progress) {
  Print(what);
  Print(fmt::format(
      "{} epoch{} of {} steps, {} samples per step on {} replica{}; {}",
      plan_.epochs, plan_.epochs == 1 ? "" : "s", plan_.steps_per_epoch,
      plan_.global_batch, session_->world_size(),
      session_->world_size() == 1 ? "" : "s",
      progress.step == 0 ? std::string("starting from scratch")
                         : fmt::format("resuming after step {} of {}",
                                       progress.step, plan_.total_steps)));
  ReportPlan();
}

void TrainingLogger::ReportPlan() {
  if (!session_->chief()) return;
  session_->Report("epochs", static_cast<double>(plan_.epochs));
  session_->Report("steps_per_epoch",
                   static_cast<double>(plan_.steps_per_epoch));
  session_->Report("global_batch", static_cast<double>(plan_.global_batch));
  session_->Report("replicas", session_->world_size());
}

void TrainingLogger::ReportEvaluation(const TrainProgress& progress) {
  if (!session_->chief() || progress.evaluated_step < 0) return;
  session_->Report("accuracy", progress.accuracy);
  session_->Report("best_accuracy", progress.best_accuracy);
  session_->Report("evaluation_loss", progress.evaluation_loss);
}

void TrainingLogger::Resume(MonoTime now) {
  since_ = now;
  loss_sum_ = 0;
  samples_ = 0;
  all_samples_ = 0;
}

void TrainingLogger::Step(int64_t step, uint64_t epoch,
                          const runtime::StepResult& result,
                          double learning_rate, MonoTime now) {
  if (!session_->chief()) return;
  all_samples_ += result.samples;
  if (result.skipped) {
    const std::string line =
        fmt::format("skipped step {}: a loss or gradient is not finite", step);
    Print(line);
    if (++skipped_ <= kLoggedSkips) session_->ReportEvent(line);
  } else {
    loss_sum_ += result.loss * static_cast<double>(result.samples);
    samples_ += result.samples;
  }
  if (log_every_ > 0 && (step % log_every_ == 0 || step == plan_.total_steps)) {
    Line(step, epoch, learning_rate, now);
  }
}

void TrainingLogger::Line(int64_t step, uint64_t epoch, double learning_rate,
                          MonoTime now) {
  const double seconds = ToSeconds(now - since_);
  const double rate =
      seconds > 0 ? static_cast<double>(all_samples_) / seconds : 0;
  const double loss =
      samples_ > 0 ? loss_sum_ / static_cast<double>(samples_) : 0;
  Print(
      fmt::format("epoch {}/{}  step {}/{}  loss {:.4f}  lr {:.5f}  "
                  "{:.0f} samples/s",
                  epoch + 1, plan_.epochs, step, plan_.total_steps, loss,
                  learning_rate, rate));
  if (samples_ > 0) session_->Report("loss", loss);
  session_->Report("samples_per_second", rate);
  Resume(now);
}

void TrainingLogger::Evaluated(const TrainProgress& progress,
                               uint64_t samples) {
  if (!session_->chief()) return;
  Print(
      fmt::format("step {}/{}  accuracy {:.4f}  loss {:.4f} on {} held-out "
                  "samples{}",
                  progress.step, plan_.total_steps, progress.accuracy,
                  progress.evaluation_loss, samples,
                  progress.evaluations_without_gain > 0
                      ? fmt::format(" (best {:.4f})", progress.best_accuracy)
                      : ""));
  ReportEvaluation(progress);
}

}  // namespace lockstep::worker::trainer
