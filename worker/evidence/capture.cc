#include "worker/evidence/capture.h"

#include <algorithm>
#include <optional>
#include <string_view>
#include <thread>
#include <utility>

#include "common/base/log_line.h"
#include "common/base/mutex.h"
#include "common/os/proc_text.h"
#include "common/os/procfs.h"
#include "worker/evidence/flight_recorder.h"
#include "worker/evidence/nccl_ras.h"
#include "worker/evidence/rank_processes.h"
#include "worker/evidence/text.h"
#include "worker/shim/log_reader.h"

namespace lockstep::worker::evidence {
namespace {

// Of one rank; the first ones, which are nearest to its start.
constexpr size_t kMostStacks = 12;
constexpr uint64_t kBytesPerLine = 512;
constexpr size_t kMostParallel = 8;
// A child gets that less than the deadline: so long may it take to die.
constexpr Duration kReserve = std::chrono::seconds(1);
constexpr Duration kFlightTime = std::chrono::milliseconds(2500);
constexpr Duration kFlightPause = std::chrono::milliseconds(20);

// The program of the shim in a container is not of the job.
constexpr std::string_view kShimName = "lockstep-shim";

class Capturer {
 public:
  Capturer(std::vector<CaptureTarget> targets, const CaptureOptions& options,
           const std::function<void(RankEvidence)>& done)
      : targets_(std::move(targets)), options_(options), done_(done) {}

  void Run() {
    start_ = MonotonicNow();
    const WallTime now = SystemClock().Now().wall;
    const std::vector<ProcessStat> all = ReadAllProcesses();
    ConnectionTables connections;
    for (CaptureTarget& target : targets_) {
      RankEvidence* const known = &target.known;
      known->time = now;
      AddProcesses(target.shim, all, &connections, known);
      AddPressures(target.cgroup, known);
      if (options_.log_lines > 0) {
        known->log_lines =
            LastLines(target.log, static_cast<size_t>(options_.log_lines));
      }
    }
    if (options_.stacks) {
      FindWork();
      std::thread flight([this] { ReadFlightRecorders(); });
      std::thread ras([this] { AskRas(); });
      ReadAll();
      flight.join();
      ras.join();
    }
    for (CaptureTarget& target : targets_) Finish(&target);
  }

 private:
  struct Item {
    size_t place = 0;  // Of the process in its rank.
    size_t target = 0;
  };

  // Every rank's first process comes before any rank's second.
  void FindWork() {
    for (size_t target = 0; target < targets_.size(); ++target) {
      const auto& processes = targets_[target].known.processes;
      size_t found = 0;
      for (size_t i = 0; i < processes.size() && found < kMostStacks; ++i) {
        if (processes[i].command == kShimName || processes[i].state == "Z") {
          continue;
        }
        work_.push_back({i, target});
        ++found;
      }
    }
    std::stable_sort(
        work_.begin(), work_.end(),
        [](const Item& a, const Item& b) { return a.place < b.place; });
  }

  void ReadAll() {
    size_t count = options_.parallel;
    if (count == 0) {
      count = std::min<size_t>(
          kMostParallel,
          2 * std::max<size_t>(1, std::thread::hardware_concurrency()));
    }
    std::vector<std::thread> threads;
    for (size_t i = 0; i < std::min(count, work_.size()); ++i) {
      threads.emplace_back([this] { ReadSome(); });
    }
    for (std::thread& thread : threads) thread.join();
  }

  void ReadSome() {
    for (;;) {
      Item item;
      {
        MutexLock lock(&mu_);
        if (next_ == work_.size()) return;
        item = work_[next_++];
      }
      // No two threads have the same process.
      ReadStacks(options_.tools, options_.deadline - kReserve,
                 &targets_[item.target].known.processes[item.place]);
    }
  }

  // A watchdog looks for the question once a second.
  void ReadFlightRecorders() {
    const MonoTime until =
        std::min(options_.deadline - kReserve, start_ + kFlightTime);
    std::vector<std::optional<FlightRecorders>> asked;
    for (const CaptureTarget& target : targets_) {
      asked.emplace_back();
      if (!target.flight_directory.empty()) {
        asked.back().emplace(target.flight_directory);
      }
    }
    for (bool all = false; !all && MonotonicNow() < until;) {
      all = true;
      for (auto& recorders : asked) {
        if (recorders && !recorders->Read()) all = false;
      }
      if (!all) std::this_thread::sleep_for(kFlightPause);
    }
    for (size_t i = 0; i < targets_.size(); ++i) {
      if (asked[i]) targets_[i].known.flight_records = asked[i]->TakeRecords();
    }
  }

  // One process of the host serves it for all of them.
  void AskRas() {
    for (CaptureTarget& target : targets_) {
      for (const ProcessEvidence& process : target.known.processes) {
        const auto environment =
            ReadProcFile(fmt::format("/proc/{}/environ", process.pid));
        if (!environment.ok()) continue;
        const auto address = RasAddressOf(*environment, target.known.sockets);
        if (!address) continue;
        auto lines = AskNcclRas(*address, options_.deadline - kReserve);
        if (lines.ok()) {
          target.known.nccl_ras = *std::move(lines);
        } else {
          target.known.notes.push_back(fmt::format(
              "NCCL's RAS at {}: {}", *address, Message(lines.status())));
        }
        break;
      }
    }
  }

  void Finish(CaptureTarget* target) {
    target->known.took = MonotonicNow() - start_;
    auto& notes = target->known.notes;
    if (notes.size() > kMaxEvidenceNotes) notes.resize(kMaxEvidenceNotes);
    done_(std::move(target->known));
  }

  std::vector<CaptureTarget> targets_;
  const CaptureOptions& options_;
  const std::function<void(RankEvidence)>& done_;
  MonoTime start_{};
  // Written before the threads start.
  std::vector<Item> work_;
  Mutex mu_;
  size_t next_ ABSL_GUARDED_BY(mu_) = 0;
};

}  // namespace

void Capture(std::vector<CaptureTarget> targets, const CaptureOptions& options,
             const std::function<void(RankEvidence)>& done) {
  Capturer(std::move(targets), options, done).Run();
}

std::vector<std::string> LastLines(const std::string& log, size_t most) {
  const std::string bytes = shim::LogTail(log, most * kBytesPerLine);
  std::string_view rest = bytes;
  std::vector<std::string> lines;
  // Of each stream, the parts of a line so far.
  std::string open[2];
  while (!rest.empty()) {
    cri::LogLine line;
    std::string error;
    if (!cri::ParseLogLine(TakeLine(&rest), &line, &error)) continue;
    std::string& text = open[static_cast<size_t>(line.stream)];
    cri::AppendToLine(line.text, &text);
    if (!line.full) continue;
    lines.push_back(ShortText(cri::ShownLine(text), kMaxEvidenceText));
    text.clear();
  }
  // What it wrote last, perhaps in the middle of a line.
  for (const std::string& text : open) {
    if (text.empty()) continue;
    lines.push_back(ShortText(cri::ShownLine(text), kMaxEvidenceText));
  }
  if (lines.size() > most) {
    lines.erase(lines.begin(), lines.end() - static_cast<std::ptrdiff_t>(most));
  }
  return lines;
}

}  // namespace lockstep::worker::evidence
