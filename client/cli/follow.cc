#include "client/cli/follow.h"

#include <fmt/format.h>

#include <deque>
#include <nlohmann/json.hpp>
#include <ostream>
#include <thread>

#include "client/cli/describe.h"
#include "client/cli/job_resource.h"
#include "client/cli/job_view.h"
#include "client/cli/progress.h"
#include "client/cli/summary.h"
#include "common/base/mutex.h"

namespace lockstep::cli {
namespace {

constexpr Duration kTick = std::chrono::milliseconds(200);
constexpr size_t kLastLines = 20;
// Bounded, because the log of a lost node never ends.
constexpr Duration kLastLinesTimeout = std::chrono::seconds(5);

// Runs the watch on its own thread and hands out its messages one by one.
class Watcher {
 public:
  Watcher(Client* client, const std::string& job)
      : thread_([this, client, job] { Watch(client, job); }) {}
  ~Watcher() {
    stop_.Stop();
    thread_.join();
  }

  struct News {
    std::optional<v1::WatchJobsResponse> message;
    // The stream broke and is being resumed.
    std::optional<Status> interruption;
    // The stream has ended.
    std::optional<Status> end;
  };
  // Returns the next message, or an empty one after `timeout`.
  News Next(Duration timeout) {
    MutexLock lock(&mu_);
    if (queue_.empty()) changed_.WaitFor(&mu_, timeout);
    if (queue_.empty()) return {};
    News news = std::move(queue_.front());
    queue_.pop_front();
    return news;
  }

 private:
  void Push(News news) {
    MutexLock lock(&mu_);
    queue_.push_back(std::move(news));
    changed_.NotifyOne();
  }
  void Watch(Client* client, const std::string& job) {
    WatchOptions options;
    options.name = job;
    options.on_interrupted = [this](const Status& status) {
      Push({std::nullopt, status, std::nullopt});
    };
    const Status end = client->WatchJobs(
        options,
        [this](const v1::WatchJobsResponse& message) {
          Push({message, std::nullopt, std::nullopt});
          return !(message.has_job() && IsFinalState(message.job().state()));
        },
        &stop_);
    Push({std::nullopt, std::nullopt, end});
  }

  Mutex mu_;
  CondVar changed_;
  std::deque<News> queue_ ABSL_GUARDED_BY(mu_);
  StopToken stop_;
  std::thread thread_;  // Last, because it uses the others.
};

// Reads the unfinished line of a program's first rank, on its own thread.
class ProgramLine {
 public:
  ProgramLine(Client* client, const std::string& job)
      : thread_([this, client, job] { Read(client, job); }) {}
  ~ProgramLine() {
    stop_.Stop();
    thread_.join();
  }
  std::string text() const {
    MutexLock lock(&mu_);
    return text_;
  }

 private:
  void Read(Client* client, const std::string& job) {
    LogOptions options;
    options.name = job;
    options.ranks = {0};
    options.tail = 1;
    options.follow = true;
    options.partial_lines = true;
    std::string stream_of_text;
    // An error is ignored, because the line is optional.
    client
        ->StreamLogs(
            options,
            [&](const v1::LogLine& line) {
              MutexLock lock(&mu_);
              if (line.partial()) {
                stream_of_text = line.stream();
                text_ = line.text();
              } else if (line.stream() == stream_of_text) {
                text_.clear();
              }
              return true;
            },
            &stop_)
        .IgnoreError();
  }

  mutable Mutex mu_;
  std::string text_ ABSL_GUARDED_BY(mu_);
  StopToken stop_;
  std::thread thread_;  // Last, because it uses the others.
};

enum class Outcome { kEnded, kInterrupted, kTimedOut };

StatusOr<Outcome> Follow(const Cli& cli, Client* client,
                         const FollowOptions& options) {
  CliEnvironment* const env = cli.env;
  FollowPrinter printer(env->err_is_tty, env->columns, cli.ErrStyle());
  const auto print = [&](const std::string& text) {
    if (!options.quiet && !text.empty()) *env->err << text << std::flush;
  };
  const MonoTime start = env->clock->Now().mono;
  Watcher watcher(client, options.job);
  std::optional<ProgramLine> line;
  while (true) {
    const Watcher::News news = watcher.Next(kTick);
    const Time now = env->clock->Now();
    if (line) printer.SetProgramLine(line->text());
    if (news.message && news.message->has_job()) {
      const v1::Job& job = news.message->job();
      print(printer.OnJob(job, now));
      // Native jobs report their progress themselves.
      if (!line && !options.quiet && job.state() == v1::JOB_STATE_RUNNING &&
          job.spec().kind() == v1::JOB_KIND_PROGRAM) {
        line.emplace(client, options.job);
      }
    } else if (news.message && news.message->has_progress()) {
      print(printer.OnProgress(news.message->progress(), now));
    } else if (news.interruption) {
      print(printer.Note(
          fmt::format("  the coordinator is unavailable ({}); the job "
                      "runs on, retrying",
                      Message(*news.interruption))));
    } else if (news.end) {
      print(printer.Finish());
      if (!news.end->ok()) return *news.end;
      return Outcome::kEnded;
    } else {
      print(printer.OnTick(now));
    }
    if (env->interrupted && env->interrupted()) {
      print(printer.Finish());
      return Outcome::kInterrupted;
    }
    if (options.timeout && now.mono - start >= *options.timeout) {
      print(printer.Finish());
      return Outcome::kTimedOut;
    }
  }
}

// Returns the last lines of the rank that failed first. They may not have
// arrived yet, but the stream with `follow` ends only after the last one.
std::vector<v1::LogLine> LastLines(Client* client, const v1::Job& job) {
  std::deque<v1::LogLine> lines;
  const auto failure = FirstFailure(job);
  if (!failure) return {};
  LogOptions options;
  options.name = job.name();
  options.ranks = {failure->rank->rank()};
  options.attempt = failure->attempt;
  options.tail = kLastLines;
  options.follow = true;
  options.timeout = kLastLinesTimeout;
  // The failure is reported even without all lines.
  client
      ->StreamLogs(
          options,
          [&](const v1::LogLine& line) {
            lines.push_back(line);
            if (lines.size() > kLastLines) lines.pop_front();
            return true;
          },
          nullptr)
      .IgnoreError();
  return {lines.begin(), lines.end()};
}

StatusOr<int> ShowEnd(const Cli& cli, Client* client, const v1::Job& job) {
  LOCKSTEP_ASSIGN_OR_RETURN(const Output output, cli.OutputFormat());
  if (output == Output::kTable || output == Output::kWide) {
    *cli.env->out << FormatSummary(job, cli.OutStyle());
  } else {
    LOCKSTEP_RETURN_IF_ERROR(WriteJob(cli, job));
  }
  if (job.state() == v1::JOB_STATE_FAILED) {
    *cli.env->out << std::flush;
    *cli.env->err << FormatFailure(job, LastLines(client, job), cli.ErrStyle());
  }
  return ExitCodeOf(job);
}

}  // namespace

Status WriteJob(const Cli& cli, const v1::Job& job,
                const std::vector<std::string>& bad_gpus) {
  LOCKSTEP_ASSIGN_OR_RETURN(const Output output, cli.OutputFormat());
  switch (output) {
    case Output::kJson:
      *cli.env->out << Dump(JobResource(job));
      break;
    case Output::kYaml:
      *cli.env->out << JsonToYaml(Dump(JobResource(job)));
      break;
    case Output::kName:
      *cli.env->out << job.name() << "\n";
      break;
    default:
      *cli.env->out << FormatJob(job, cli.env->clock->Now().wall,
                                 cli.OutStyle(), bad_gpus);
  }
  return OkStatus();
}

StatusOr<int> FollowToEnd(const Cli& cli, Client* client,
                          const FollowOptions& options) {
  CliEnvironment* const env = cli.env;
  LOCKSTEP_ASSIGN_OR_RETURN(const Outcome outcome,
                            Follow(cli, client, options));
  if (outcome == Outcome::kInterrupted) {
    *env->err << fmt::format(
        "detached; the job runs on. To follow it:  lockstep jobs wait {0}\n"
        "its output:  lockstep jobs logs -f {0}\n"
        "to end it:   lockstep jobs cancel {0}\n",
        options.job);
    return kExitInterrupted;
  }
  // The watch lacks some fields of Get.
  LOCKSTEP_ASSIGN_OR_RETURN(const v1::Job job, client->GetJob(options.job));
  if (outcome == Outcome::kTimedOut && !IsFinalState(job.state())) {
    *env->err << fmt::format("lockstep: job {} is {} after {}\n", options.job,
                             Text(job.state()),
                             FormatDuration(*options.timeout));
    return kExitTimedOut;
  }
  if (!IsFinalState(job.state())) {
    return Unavailable("the coordinator ended the watch while job {} is {}",
                       options.job, Text(job.state()));
  }
  return ShowEnd(cli, client, job);
}

}  // namespace lockstep::cli
