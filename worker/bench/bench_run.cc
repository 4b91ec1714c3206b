#include "worker/bench/bench_run.h"

#include <fmt/format.h>
#include <sched.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>

#include "common/base/file.h"
#include "common/base/version.h"

namespace lockstep::worker::bench {
namespace {

// Ranks that are shown; the JSON has all.
constexpr size_t kMostPlaces = 64;
constexpr Duration kTuning = std::chrono::milliseconds(50);

std::string CpuModel() {
  std::ifstream file("/proc/cpuinfo");
  std::string line;
  while (std::getline(file, line)) {
    if (line.rfind("model name", 0) == 0) {
      return line.substr(line.find(':') + 2);
    }
  }
  return "unknown";
}

nlohmann::json DescribeMachine() {
  utsname system{};
  uname(&system);
  cpu_set_t cpus;
  CPU_ZERO(&cpus);
  sched_getaffinity(0, sizeof(cpus), &cpus);
  return {{"host", system.nodename},
          {"cpu", CpuModel()},
          {"cores", CPU_COUNT(&cpus)},
          {"kernel", fmt::format("{} {}", system.sysname, system.release)},
          {"time", FormatWallTime(SystemClock().Now().wall)}};
}

// Which process of which host a rank is; longer names are cut.
struct RankPlace {
  int64_t pid;
  char host[120];  // Ends with 0.
};

RankPlace OwnPlace() {
  RankPlace own = {.pid = getpid(), .host = {}};
  gethostname(own.host, sizeof(own.host) - 1);
  return own;
}

nlohmann::json PlacesJson(const std::vector<RankPlace>& places) {
  nlohmann::json json = nlohmann::json::array();
  for (size_t rank = 0; rank < places.size(); ++rank) {
    const RankPlace& place = places[rank];
    json.push_back({{"rank", rank}, {"pid", place.pid}, {"host", place.host}});
  }
  return json;
}

class Bench {
 public:
  Bench(const BenchOptions& options, collective::Communicator* communicator)
      : options_(options),
        communicator_(communicator),
        speaks_(communicator->rank() == 0) {}

  Status Run(bool* wrong) {
    if (options_.root >= communicator_->size()) {
      return InvalidArgument("--root {}: there are {} ranks", options_.root,
                             communicator_->size());
    }
    // As before a training's first step.
    LOCKSTEP_RETURN_IF_ERROR(
        communicator_->Tune(kTuning, MonotonicNow() + options_.timeout));
    LOCKSTEP_ASSIGN_OR_RETURN(
        places_, GatherFromAll(communicator_, OwnPlace(), options_.timeout));
    Begin();
    LOCKSTEP_RETURN_IF_ERROR(Collectives());
    if (options_.steps) {
      LOCKSTEP_ASSIGN_OR_RETURN(const StepResults result,
                                BenchSteps(communicator_, options_));
      Say(StepText(result));
      results_.push_back(StepJson(result));
      *wrong = result.wrong > 0;
    }
    for (const BenchRow& row : rows_) {
      *wrong = *wrong || row.out_of_place.wrong > 0 ||
               (row.in_place && row.in_place->wrong > 0);
    }
    return speaks_ ? Store() : OkStatus();
  }

 private:
  void Say(const std::string& text) const {
    if (!speaks_) return;
    fmt::print("{}", text);
    std::fflush(stdout);
  }

  void Begin() const {
    Say(
        fmt::format("# lockstep-bench {}: {} ranks, backend {}, {} warm-up and "
                    "{} timed {}\n",
                    kVersion, communicator_->size(), communicator_->backend(),
                    options_.warm_up, options_.iterations,
                    options_.collectives.empty() ? "steps" : "operations"));
    const std::string plan = communicator_->Plan();
    if (!plan.empty()) Say(fmt::format("# {}\n", plan));
    Say("#\n");
    for (size_t rank = 0; rank < places_.size() && rank < kMostPlaces; ++rank) {
      Say(fmt::format("#  Rank {:>3} Pid {:>7} on {}\n", rank,
                      places_[rank].pid, places_[rank].host));
    }
    if (places_.size() > kMostPlaces) {
      Say(fmt::format("#  ... and {} more\n", places_.size() - kMostPlaces));
    }
  }

  Status Collectives() {
    if (options_.collectives.empty()) return OkStatus();
    std::optional<collective::CollectiveKind> last;
    LOCKSTEP_RETURN_IF_ERROR(BenchCollectives(
        communicator_, options_,
        [&](const BenchRow& row) {
          if (row.kind != last) {
            Say(fmt::format("#\n# {}\n", Name(row.kind)) + TableHeader());
          }
          last = row.kind;
          rows_.push_back(row);
          results_.push_back(RowJson(row));
          Say(TableRow(row));
        },
        [&](const std::string& why) {
          Say(fmt::format("# left out: {}\n", why));
        }));
    Say(TableFooter(rows_));
    return OkStatus();
  }

  Status Store() const {
    const nlohmann::json document = {
        {"machine", DescribeMachine()},
        {"versions",
         {{"lockstep", std::string(kVersion)}, {"compiler", __VERSION__}}},
        {"backend", std::string(communicator_->backend())},
        {"plan", communicator_->Plan()},
        {"ranks", PlacesJson(places_)},
        {"results", results_}};
    if (options_.json_line) Say("JSON " + document.dump() + "\n");
    if (options_.json.empty()) return OkStatus();
    return RealFileSystem()->WriteAtomic(options_.json,
                                         document.dump(2) + "\n");
  }

  const BenchOptions& options_;
  collective::Communicator* const communicator_;
  const bool speaks_;
  std::vector<RankPlace> places_;
  std::vector<BenchRow> rows_;
  nlohmann::json results_ = nlohmann::json::array();
};

}  // namespace

Status RunBench(const BenchOptions& options,
                collective::Communicator* communicator, bool* wrong) {
  return Bench(options, communicator).Run(wrong);
}

}  // namespace lockstep::worker::bench
