#include <fmt/format.h>
#include <unistd.h>

#include <memory>
#include <ostream>
#include <thread>

#include "client/cli/cli.h"
#include "client/cli/parse.h"
#include "client/cli/terminal.h"
#include "client/cli/top.h"
#include "client/cli/top_keys.h"
#include "common/base/mutex.h"

namespace lockstep::cli {
namespace {

// Limits the finished jobs on the screen.
constexpr int64_t kMostEnded = 10;
constexpr int64_t kMostLive = 500;
// A short deadline per call, because the user is waiting.
constexpr Duration kAnswerTime = std::chrono::seconds(3);

struct TopFlags {
  std::string interval = "1s";
  int64_t frames = 0;
  bool batch = false;
  bool nodes = false;
};

// `focus`: the job to look at, or "".
StatusOr<TopSample> Ask(const Clock& clock, Client* client,
                        const std::string& focus) {
  TopSample sample;
  if (!focus.empty()) {
    auto job = client->GetJob(focus);
    if (job.ok()) {
      sample.focus = *std::move(job);
    } else if (job.status().code() != StatusCode::kNotFound) {
      return job.status();
    }
  }
  ListJobsOptions live;
  live.limit = kMostLive;
  for (int i = v1::JOB_STATE_QUEUED; i < v1::JOB_STATE_SUCCEEDED; ++i) {
    live.states.push_back(static_cast<v1::JobState>(i));
  }
  LOCKSTEP_ASSIGN_OR_RETURN(sample.jobs, client->ListJobs(live));
  ListJobsOptions ended;
  ended.limit = kMostEnded;
  ended.states = {v1::JOB_STATE_SUCCEEDED, v1::JOB_STATE_FAILED,
                  v1::JOB_STATE_CANCELLED};
  LOCKSTEP_ASSIGN_OR_RETURN(std::vector<v1::Job> jobs, client->ListJobs(ended));
  for (v1::Job& job : jobs) sample.jobs.push_back(std::move(job));
  LOCKSTEP_ASSIGN_OR_RETURN(sample.nodes, client->ListNodes());
  sample.time = clock.Now().wall;
  return sample;
}

// Queries on its own thread, so that keys work while the coordinator is slow.
class Asker {
 public:
  Asker(const Clock* clock, Client* client, Duration interval,
        Terminal* terminal)
      : thread_([=, this] { Run(clock, client, interval, terminal); }) {}
  ~Asker() {
    {
      MutexLock lock(&mu_);
      stop_ = true;
      changed_.NotifyAll();
    }
    thread_.join();
  }

  // The job to look at from now on, or "". A new one is asked for at once.
  void Look(const std::string& job) {
    MutexLock lock(&mu_);
    if (focus_ == job) return;
    focus_ = job;
    changed_.NotifyAll();
  }

  // Moves a new sample into `state`.
  void Update(TopState* state) {
    MutexLock lock(&mu_);
    if (!news_) return;
    if (news_->ok()) {
      state->Take(**std::move(news_));
    } else {
      state->Fail(Message(news_->status()));
    }
    news_.reset();
  }

 private:
  void Run(const Clock* clock, Client* client, Duration interval,
           Terminal* terminal) {
    for (;;) {
      std::string focus;
      {
        MutexLock lock(&mu_);
        if (stop_) return;
        focus = focus_;
      }
      auto sample = Ask(*clock, client, focus);
      {
        MutexLock lock(&mu_);
        news_ = std::move(sample);
      }
      terminal->Wake();
      const MonoTime next = MonotonicNow() + interval;
      MutexLock lock(&mu_);
      while (!stop_ && focus_ == focus && changed_.WaitUntil(&mu_, next)) {
      }
    }
  }

  Mutex mu_;
  std::optional<StatusOr<TopSample>> news_ ABSL_GUARDED_BY(mu_);
  std::string focus_ ABSL_GUARDED_BY(mu_);
  bool stop_ ABSL_GUARDED_BY(mu_) = false;
  CondVar changed_;
  std::thread thread_;  // Last, because it uses the others.
};

// Releases the terminal before joining a thread that may still wait for an
// answer.
struct CloseFirst {
  explicit CloseFirst(Terminal* terminal) : terminal(terminal) {}
  ~CloseFirst() { terminal->Close(); }
  Terminal* const terminal;
};

// Returns the exit code. The terminal is restored on return.
int Watch(const Cli& cli, Client* client, Terminal* terminal, Duration interval,
          int64_t frames, TopView view) {
  const Clock& clock = *cli.env->clock;
  TopState state;
  Asker asker(&clock, client, interval, terminal);
  const CloseFirst close(terminal);
  int64_t drawn = 0;
  while (true) {
    asker.Look(view.screen == TopScreen::kRanks ? view.job : "");
    asker.Update(&state);
    const std::vector<std::string> lines =
        RenderTop(state, &view, terminal->width(), terminal->height(),
                  clock.Now().wall, cli.OutStyle());
    if (!terminal->Draw(lines)) return kExitError;
    if (!state.empty() && frames > 0 && ++drawn >= frames) return 0;
    const Terminal::Events events = terminal->Wait(interval);
    if (events.end_signal != 0) return 128 + events.end_signal;
    if (events.closed) return kExitError;
    for (const KeyPress& key : events.keys) {
      if (!PressTopKey(key, terminal->height(), &view)) return 0;
    }
  }
}

StatusOr<int> Batch(const Cli& cli, Client* client, Duration interval,
                    int64_t frames, const TopView& view) {
  CliEnvironment* const env = cli.env;
  TopState state;
  StopToken pause;
  for (int64_t i = 0; frames == 0 || i < frames; ++i) {
    if (i > 0 && pause.WaitFor(interval)) break;
    auto sample = Ask(*env->clock, client, "");
    // During a restart of the coordinator the last sample stays, with its age.
    if (!sample.ok() &&
        (i == 0 || sample.status().code() != StatusCode::kUnavailable)) {
      return sample.status();
    }
    if (cli.output == "json") {
      if (!sample.ok()) continue;
      *env->out << TopJson(*sample);
    } else {
      if (sample.ok()) {
        state.Take(*std::move(sample));
      } else {
        state.Fail(Message(sample.status()));
      }
      *env->out << (i > 0 ? "\n" : "")
                << RenderTopBatch(state, view, env->columns,
                                  env->clock->Now().wall);
    }
    *env->out << std::flush;
    if (!env->out->good()) return 0;
    if (env->interrupted && env->interrupted()) return kExitInterrupted;
  }
  return 0;
}

StatusOr<int> RunTop(const Cli& cli, const TopFlags& options) {
  CliEnvironment* const env = cli.env;
  const auto interval = ParseDuration(options.interval);
  if (!interval.ok()) return Annotate(interval.status(), "--interval");
  if (*interval < std::chrono::milliseconds(100)) {
    return InvalidArgument("--interval: must be at least 100 ms, not {}",
                           options.interval);
  }
  LOCKSTEP_ASSIGN_OR_RETURN(ClientOptions connection,
                            ResolveConnection(cli.connection, *env));
  connection.timeout = kAnswerTime;
  TopView view;
  view.address = connection.address;
  if (options.nodes) view.screen = TopScreen::kNodes;
  if (options.batch || cli.output == "json") {
    const bool once = options.frames == 0 && !options.batch;
    LOCKSTEP_ASSIGN_OR_RETURN(const auto client, Client::Connect(connection));
    if (!once && env->end_with_reader) env->end_with_reader();
    return Batch(cli, client.get(), *interval, once ? 1 : options.frames, view);
  }
  if (!env->out_is_tty || !env->in_is_tty || env->Variable("TERM") == "dumb") {
    return InvalidArgument(
        "top needs a terminal; `lockstep top -b -n 1` prints one frame as text "
        "and -o json as data");
  }
  // Before the client's threads, because the terminal handles signals.
  LOCKSTEP_ASSIGN_OR_RETURN(const auto terminal,
                            Terminal::Open(STDIN_FILENO, STDOUT_FILENO));
  LOCKSTEP_ASSIGN_OR_RETURN(const auto client, Client::Connect(connection));
  return Watch(cli, client.get(), terminal.get(), *interval, options.frames,
               view);
}

}  // namespace

Command TopCommand(Cli* cli) {
  const auto options = std::make_shared<TopFlags>();
  Command command = LeafCommand(
      "top", "Show jobs and nodes, refreshed continuously",
      "  lockstep top\n"
      "  lockstep top -b -n 1          one frame as text, for scripts\n"
      "  lockstep top -o json | jq '.nodes[].gpuUsage'\n\n"
      "Keys: q quits, j shows jobs, n nodes, < and > (or left and right)\n"
      "change the sort order, r reverses it, up, down and the page keys\n"
      "move, Enter shows the ranks of the marked job and goes back, / types\n"
      "a text that rows must contain (Enter ends it). The bar of a job shows "
      "what its chief did since the last\n"
      "frame: c compute, r all-reduce, w waiting for a straggler, i input,\n"
      "o optimizer, k checkpoint, e evaluation, m compile, and dots for the\n"
      "rest. BUSY\n"
      "of a GPU is the share of time in which a kernel ran, \"memory\n"
      "access\" the share in which its memory was read or written.");
  command.Add("-b,--batch", &options->batch,
              "Plain text frames, endless or -n of them");
  command.Add("-n,--frames N", &options->frames,
              "End after N frames (default: never; with -o json 1)",
              AtLeast(1));
  command.Add("-d,--interval DURATION", &options->interval,
              "Time between frames", ShowDefault);
  command.Add("--nodes", &options->nodes, "Show the nodes first");
  command.Add("-o,--output-format FORMAT", &cli->output,
              "table, or json: one object per frame and line",
              OneOf({"table", "json"}), ShowDefault);
  AddColorOption(&command, cli);
  AddConnectionOptions(&command, cli);
  command.run = [=] { return RunTop(*cli, *options); };
  return command;
}

}  // namespace lockstep::cli
