#include "worker/agent/checks/check_run.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <list>
#include <map>

#include "common/base/fd.h"
#include "common/base/logging.h"
#include "common/os/process.h"
#include "worker/agent/checks/check_output.h"

namespace lockstep::worker::agent {
namespace {

constexpr size_t kMostOutput = 64 << 10;
// How often a cancellation is looked for.
constexpr Duration kTurn = std::chrono::milliseconds(100);
// For a killed process. One in an uninterruptible wait is left behind.
constexpr Duration kKillTime = std::chrono::seconds(2);
constexpr char kCudaDevices[] = "CUDA_VISIBLE_DEVICES=";
constexpr char kAllReduce[] = "all_reduce";

// One process of the program.
class Child {
 public:
  // `devices` is its CUDA_VISIBLE_DEVICES.
  Child(const GpuCheckPlan& plan, std::vector<std::string> arguments,
        const std::string& devices, MonoTime deadline)
      : begun_(MonotonicNow()), deadline_(deadline) {
    auto pipe = MakePipe();
    if (!pipe.ok()) {
      error_ = pipe.status();
      return;
    }
    SpawnOptions options;
    options.program = plan.program;
    options.argv = std::move(arguments);
    options.argv.insert(options.argv.begin(), plan.program);
    for (const std::string& each : plan.environment) {
      if (!each.starts_with(kCudaDevices)) options.env.push_back(each);
    }
    options.env.push_back(kCudaDevices + devices);
    options.stdout_fd = pipe->write.get();
    options.cwd = "/";
    options.new_session = true;
    auto process = Spawn(options);
    if (!process.ok()) {
      error_ = process.status();
      return;
    }
    process_ = *std::move(process);
    out_ = std::move(pipe->read);
  }

  // It has ended, or its time was over.
  bool done() const { return !process_; }
  // Not OK: it could not be started.
  const Status& error() const { return error_; }
  const GpuCheckEnd& end() const { return end_; }
  Duration took() const { return took_; }
  GpuCheckOutput Output() const { return ParseGpuCheck(text_); }

  // -1: nothing to wait for.
  int out() const { return out_.get(); }
  int pidfd() const { return process_ ? process_->pidfd.get() : -1; }
  MonoTime deadline() const { return deadline_; }

  void Read() {
    char buffer[4096];
    const ssize_t size = read(out_.get(), buffer, sizeof(buffer));
    if (size < 0 && (errno == EINTR || errno == EAGAIN)) return;
    if (size <= 0) {
      out_.Reset();
      return;
    }
    const size_t room = kMostOutput - std::min(text_.size(), kMostOutput);
    text_.append(buffer, std::min(static_cast<size_t>(size), room));
    if (room < static_cast<size_t>(size)) Kill();
  }
  // Takes its end; what it printed before is in the pipe.
  void Reap() {
    const auto exit = WaitExit(*process_, MonotonicNow() + kKillTime);
    while (out_.get() >= 0 && HasInput()) Read();
    if (!exit.ok()) {
      LOG_WARN("{}: process {} does not end: {}", "lockstep-gpu-check",
               process_->id.pid, Message(exit.status()));
    } else if (!exit->ok() && !end_.hung) {
      end_.exit = (exit->signal != 0 ? "was " : "") + exit->Describe();
    }
    took_ = MonotonicNow() - begun_;
    out_.Reset();
    process_.reset();
  }
  void Hang() {
    end_.hung = true;
    Kill();
    Reap();
  }
  void Kill() { (void)SendSignal(*process_, SIGKILL); }

 private:
  bool HasInput() const {
    pollfd wait{out_.get(), POLLIN, 0};
    return poll(&wait, 1, 0) > 0;
  }

  const MonoTime begun_;
  const MonoTime deadline_;
  Status error_;
  std::optional<Process> process_;
  Fd out_;
  std::string text_;
  GpuCheckEnd end_;
  Duration took_{};
};

// Waits until all have ended; kills what takes too long, and all of them when
// cancelled.
void Await(std::list<Child>* children, const std::atomic<bool>& cancelled) {
  for (;;) {
    std::vector<pollfd> waits;
    std::vector<Child*> owners;
    for (Child& child : *children) {
      if (child.done()) continue;
      if (cancelled || MonotonicNow() >= child.deadline()) {
        child.Hang();
        continue;
      }
      waits.push_back({child.pidfd(), POLLIN, 0});
      owners.push_back(&child);
      waits.push_back({child.out(), POLLIN, 0});
      owners.push_back(&child);
    }
    if (waits.empty()) return;
    const auto turn =
        std::chrono::duration_cast<std::chrono::milliseconds>(kTurn);
    if (poll(waits.data(), waits.size(), static_cast<int>(turn.count())) <= 0) {
      continue;
    }
    for (size_t i = 0; i < waits.size(); i += 2) {
      if (waits[i + 1].revents != 0) owners[i]->Read();
      if (waits[i].revents != 0) owners[i]->Reap();
    }
  }
}

GpuCheckPart Skipped(std::string why) {
  GpuCheckPart part{kAllReduce};
  part.skipped = std::move(why);
  return part;
}

// The part that the process of a pair found, for both.
GpuCheckPart PartOf(const Child& child, const std::string& what) {
  const GpuCheckOutput output = child.Output();
  if (!output.cannot.empty()) return Skipped(output.cannot);
  const std::string failure = FailureOf(output, child.end(), child.took());
  GpuCheckPart part{kAllReduce};
  for (const GpuCheckPart& each : output.parts) {
    if (each.name == kAllReduce) part = each;
  }
  if (!failure.empty()) {
    constexpr std::string_view kPrefix = "all_reduce: ";
    part.failure =
        what + ": " +
        (failure.starts_with(kPrefix) ? failure.substr(kPrefix.size())
                                      : failure);
    part.failure.resize(std::min(part.failure.size(), kMaxCheckText));
  }
  return part;
}

// Adds the all-reduce to the checks that passed so far.
void AddAllReduce(const GpuCheckPlan& plan, MonoTime deadline,
                  const std::atomic<bool>& cancelled,
                  std::map<int32_t, GpuCheck>* checks) {
  std::vector<GpuCheckTarget> passed;
  for (const GpuCheckTarget& gpu : plan.gpus) {
    const auto it = checks->find(gpu.index);
    if (it == checks->end()) continue;
    if (it->second.failure.empty()) {
      passed.push_back(gpu);
    } else {
      it->second.parts.push_back(Skipped("an earlier part failed"));
    }
  }
  const auto pairs = PairsOf(passed, plan.partner);
  if (pairs.empty() && !passed.empty()) {
    (*checks)[passed[0].index].parts.push_back(
        Skipped("no second GPU of the node is free"));
  }
  std::list<Child> children;
  for (const auto& [one, other] : pairs) {
    children.emplace_back(plan, std::vector<std::string>{"--all-reduce"},
                          one.uuid + "," + other.uuid, deadline);
  }
  Await(&children, cancelled);
  auto child = children.begin();
  for (const auto& [one, other] : pairs) {
    const auto add = [&](const GpuCheckTarget& gpu,
                         const GpuCheckTarget& with) {
      const auto it = checks->find(gpu.index);
      if (it == checks->end()) return;  // A partner.
      GpuCheck& check = it->second;
      check.parts.push_back(
          PartOf(*child, fmt::format("with GPU {}", with.index)));
      check.took += child->took();
      if (const GpuCheckPart& part = check.parts.back();
          !part.failure.empty()) {
        check.failure = part.name + " " + part.failure;
        check.failure.resize(std::min(check.failure.size(), kMaxCheckText));
      }
    };
    add(one, other);
    add(other, one);
    ++child;
  }
}

}  // namespace

std::vector<std::pair<GpuCheckTarget, GpuCheckTarget>> PairsOf(
    const std::vector<GpuCheckTarget>& passed,
    const std::optional<GpuCheckTarget>& partner) {
  std::vector<std::pair<GpuCheckTarget, GpuCheckTarget>> pairs;
  for (size_t i = 0; i + 1 < passed.size(); i += 2) {
    pairs.emplace_back(passed[i], passed[i + 1]);
  }
  if (passed.size() % 2 == 0) return pairs;
  if (partner) {
    pairs.emplace_back(passed.back(), *partner);
  } else if (passed.size() > 1) {
    // The first has been in a pair, and is good enough for another.
    pairs.emplace_back(passed.back(), passed.front());
  }
  return pairs;
}

GpuCheckAnswer RunChecks(const GpuCheckPlan& plan,
                         const std::atomic<bool>& cancelled) {
  GpuCheckAnswer answer;
  const MonoTime begun = MonotonicNow();
  std::list<Child> children;
  for (const GpuCheckTarget& gpu : plan.gpus) {
    children.emplace_back(plan, std::vector<std::string>{}, gpu.uuid,
                          begun + plan.within * 2 / 3);
  }
  Await(&children, cancelled);
  std::map<int32_t, GpuCheck> checks;
  auto child = children.begin();
  for (const GpuCheckTarget& gpu : plan.gpus) {
    const Child& ended = *child++;
    if (!ended.error().ok()) {
      answer.status =
          Unimplemented("cannot start the check: {}", Message(ended.error()));
      continue;
    }
    const GpuCheckOutput output = ended.Output();
    if (!output.cannot.empty()) {
      answer.status = Unimplemented("{}", output.cannot);
      continue;
    }
    GpuCheck check{gpu.index, gpu.uuid};
    check.took = ended.took();
    check.parts = output.parts;
    check.failure = FailureOf(output, ended.end(), ended.took());
    check.failure.resize(std::min(check.failure.size(), kMaxCheckText));
    checks[gpu.index] = std::move(check);
  }
  if (!checks.empty()) {
    answer.status = OkStatus();
    AddAllReduce(plan, begun + plan.within, cancelled, &checks);
  }
  if (cancelled) {
    answer.status = Cancelled("the check was ended: its stream is over");
    return answer;
  }
  for (auto& [index, check] : checks) {
    check.time = SystemClock().Now().wall;
    answer.checks.push_back(std::move(check));
  }
  return answer;
}

}  // namespace lockstep::worker::agent
