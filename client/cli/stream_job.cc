#include "client/cli/stream_job.h"

#include <fmt/format.h>

#include <ostream>
#include <thread>

namespace lockstep::cli {
namespace {

constexpr Duration kStreamTick = std::chrono::milliseconds(100);
constexpr Duration kLook = std::chrono::seconds(1);
// Time for the last lines after the job's end.
constexpr Duration kLastLinesPatience = std::chrono::seconds(10);
// Time for the job's end after its lines ended.
constexpr Duration kEndPatience = std::chrono::seconds(60);

class Streamer {
 public:
  Streamer(const Cli& cli, Client* client, const StreamJobOptions& options)
      : cli_(cli), client_(client), options_(options) {}

  StatusOr<std::optional<v1::Job>> Run() {
    std::thread reader([this] { Read(); });
    const bool interrupted = Watch();
    stop_.Stop();
    reader.join();
    if (reader_left_ && options_.cancels && !cancelled_) {
      client_->CancelJob(options_.job).status().IgnoreError();
    }
    if (interrupted || reader_left_) return std::optional<v1::Job>();
    // Missing lines are not an error; the job's end counts.
    if (!status_.ok() && !gave_up_) return status_;
    LOCKSTEP_ASSIGN_OR_RETURN(
        v1::Job job, client_->WaitJob(options_.job, kEndPatience, nullptr));
    return std::optional<v1::Job>(std::move(job));
  }

 private:
  void Read() {
    LogOptions log;
    log.name = options_.job;
    log.follow = true;
    log.tasks = options_.tasks;
    log.include_events = options_.include_events;
    log.partial_lines = options_.partial_lines;
    log.on_interrupted = [this](const Status& status) {
      PrintNote(fmt::format(
          "the coordinator is unavailable ({}); the job runs on, trying "
          "again",
          Message(status)));
    };
    status_ = client_->StreamLogs(
        log,
        [this](const v1::LogLine& line) {
          reader_left_ = !options_.write(line);
          return !reader_left_;
        },
        &stop_);
    done_.Stop();
  }

  // Watches until the lines end. Returns true if it stopped before the job's
  // end.
  bool Watch() {
    CliEnvironment* const env = cli_.env;
    MonoTime looked = env->clock->Now().mono;
    std::optional<MonoTime> ended;
    while (!done_.WaitFor(kStreamTick)) {
      if (!cancelled_ && env->interrupted && env->interrupted()) {
        if (!options_.cancels) return true;
        Cancel();
      }
      if (cancelled_ && options_.leaves_at_second && env->signals &&
          env->signals() > 1) {
        return true;
      }
      const MonoTime now = env->clock->Now().mono;
      if (now - looked < kLook) continue;
      looked = now;
      if (HasEnded() && !ended) ended = now;
      if (ended && now - *ended >= kLastLinesPatience) {
        gave_up_ = true;
        return false;
      }
    }
    return false;
  }

  void Cancel() {
    cancelled_ = true;
    PrintNote(
        fmt::format("cancelling {}; a second Ctrl-C does not wait for its end",
                    options_.job));
    const auto job = client_->CancelJob(options_.job);
    if (!job.ok()) PrintNote(Message(job.status()));
  }

  bool HasEnded() {
    const auto job = client_->GetJob(options_.job);
    if (!job.ok()) return false;
    const bool waits = job->state() == v1::JOB_STATE_QUEUED ||
                       job->state() == v1::JOB_STATE_PLACING;
    if (options_.tells_waiting && waits && !job->cause().message().empty() &&
        job->cause().message() != printed_reason_) {
      printed_reason_ = job->cause().message();
      PrintNote(fmt::format("{} waits: {}", options_.job,
                            Printable(printed_reason_)));
    }
    return IsFinalState(job->state());
  }

  void PrintNote(const std::string& text) {
    const std::string line = "lockstep: " + text + "\n";
    if (options_.print_note) return options_.print_note(line);
    *cli_.env->err << line << std::flush;
  }

  const Cli& cli_;
  Client* const client_;
  const StreamJobOptions& options_;
  StopToken stop_;
  StopToken done_;
  Status status_;             // Of the reader; read after its join.
  bool reader_left_ = false;  // Same.
  bool cancelled_ = false;
  bool gave_up_ = false;
  std::string printed_reason_;
};

}  // namespace

StatusOr<std::optional<v1::Job>> StreamJob(const Cli& cli, Client* client,
                                           const StreamJobOptions& options) {
  return Streamer(cli, client, options).Run();
}

}  // namespace lockstep::cli
