#include "tests/bench/step_run.h"

#include <dlfcn.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <system_error>

#include "tests/bench/machine_load.h"

namespace lockstep {
namespace {

std::string OwnDirectory() {
  return std::filesystem::read_symlink("/proc/self/exe").parent_path();
}

// Whether lockstep-train takes OpenBLAS's AVX-512 kernels by force here: where
// the library does not know the processor (WiderBlasCore of environment.h).
bool PrefersWideBlas() {
  if (std::getenv("OPENBLAS_CORETYPE") != nullptr ||
      !__builtin_cpu_supports("avx512vl")) {
    return false;
  }
  void* const library = dlopen("libopenblas.so.0", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return false;
  using CoreName = char* (*)();
  const auto core =
      reinterpret_cast<CoreName>(dlsym(library, "openblas_get_corename"));
  const std::string name = core != nullptr ? core() : "";
  return name == "Zen" || name == "Haswell";
}

// What lockstep-train sets for itself.
std::vector<std::string> Tuned(std::vector<std::string> command) {
  static const bool wide = PrefersWideBlas();
  std::vector<std::string> words = {"env", "MALLOC_MMAP_THRESHOLD_=1073741824",
                                    "MALLOC_TRIM_THRESHOLD_=4294967296",
                                    "OMP_NUM_THREADS=1",
                                    "OPENBLAS_NUM_THREADS=1"};
  if (wide) words.push_back("OPENBLAS_CORETYPE=SkylakeX");
  command.insert(command.begin(), words.begin(), words.end());
  return command;
}

std::vector<std::string> Common(int rank, const std::string& dir,
                                const std::string& model) {
  return {"--dir",   dir,
          "--rank",  std::to_string(rank),
          "--ranks", std::to_string(kStepRanks),
          "--core",  std::to_string(rank),
          "--model", model};
}

// Where ours leaves its weights and batches.
std::string StartOf(const std::string& dir) { return dir + "/../start"; }

}  // namespace

void Append(std::vector<std::string>* to,
            const std::vector<std::string>& more) {
  to->insert(to->end(), more.begin(), more.end());
}

Command OurSteps(const std::string& model, const std::string& backend,
                 const std::vector<std::string>& more) {
  return [=](int rank, const std::string& dir) {
    std::vector<std::string> command = {OwnDirectory() + "/step_probe",
                                        "--backend", backend};
    Append(&command, Common(rank, dir, model));
    Append(&command, more);
    return command;
  };
}

Command Exporting(const Command& ours) {
  return [=](int rank, const std::string& dir) {
    std::vector<std::string> command = ours(rank, dir);
    Append(&command, {"--export", StartOf(dir)});
    return command;
  };
}

std::string GatingDdp() {
  const char* const named = std::getenv("LOCKSTEP_BENCH_PYTHON_TORCH");
  return named == nullptr ? "Debian's python3-torch DDP, gloo"
                          : fmt::format("torch DDP of {}, gloo", named);
}

Command DdpSteps(const std::string& model, const std::vector<std::string>& more,
                 bool tuned, const std::string& python) {
  const char* const named = std::getenv("LOCKSTEP_BENCH_PYTHON_TORCH");
  const std::string program = !python.empty()    ? python
                              : named != nullptr ? named
                                                 : "/usr/bin/python3";
  return [=](int rank, const std::string& dir) {
    std::vector<std::string> command = {program, LOCKSTEP_BENCH_PEERS "/ddp.py",
                                        "--start", StartOf(dir)};
    Append(&command, Common(rank, dir, model));
    Append(&command, more);
    if (tuned) return Tuned(command);
    Append(&command, {"--core", "-1"});
    command.insert(command.begin(), {"env", "OMP_NUM_THREADS=1"});
    return command;
  };
}

std::string FrameworkPython(const std::string& which) {
  const char* const frameworks = std::getenv("LOCKSTEP_FRAMEWORKS");
  return fmt::format("{}/{}/bin/python",
                     frameworks != nullptr ? frameworks : "/nonexistent",
                     which);
}

Command MwmsSteps(bool tuned) {
  const std::string python = FrameworkPython("tensorflow");
  const int port =
      20000 + static_cast<int>(getpid()) % 10000 * 2 + (tuned ? 20000 : 0);
  return [=](int rank, const std::string& dir) {
    std::vector<std::string> command = {
        python,    LOCKSTEP_BENCH_PEERS "/mwms.py",
        "--port",  std::to_string(port),
        "--start", StartOf(dir)};
    Append(&command, Common(rank, dir, "shallow"));
    if (tuned) return Tuned(command);
    Append(&command, {"--core", "-1", "--threads", "0"});
    return command;
  };
}

namespace {

// Gone with the object.
struct TempDir {
  TempDir() {
    char name[] = "/tmp/lockstep-step-bench-XXXXXX";
    if (mkdtemp(name) != nullptr) path = name;
  }
  ~TempDir() {
    std::error_code ignored;
    if (!path.empty()) std::filesystem::remove_all(path, ignored);
  }
  std::string path;
};

// Those that are there, by their index.
StatusOr<std::vector<size_t>> StartSides(std::vector<SideEntry>* sides,
                                         const std::string& dir,
                                         StepReport* report) {
  std::vector<size_t> there;
  for (size_t s = 0; s < sides->size(); ++s) {
    Side& side = *(*sides)[s].side;
    const std::string own = fmt::format("{}/{}", dir, s);
    std::filesystem::create_directory(own);
    if (const Status started = side.Start(own); started.ok()) {
      there.push_back(s);
      for (const auto& [what, version] : side.versions()) {
        const std::string key = fmt::format("{}: {}", side.name(), what);
        fmt::print("{}: {}\n", key, version);
        report->versions[key] = version;
      }
    } else if (s == 0) {
      return started;
    } else {
      fmt::print("left out: {}\n", Message(started));
      (*sides)[s].side.reset();
    }
  }
  return there;
}

// Ends all. Ours must end well, a peer's failure is a check that is missed.
StatusOr<std::vector<StepCheck>> EndSides(const std::vector<SideEntry>& sides,
                                          const std::vector<size_t>& there,
                                          const StepTolerance& tolerance) {
  std::vector<StepCheck> checks(sides.size());
  std::vector<StepEnd> ours;
  for (const size_t s : there) {
    auto ends = sides[s].side->End();
    if (s == 0) {
      LOCKSTEP_RETURN_IF_ERROR(ends.status());
      ours = *ends;
      checks[s] = CheckOurs(ours, tolerance);
    } else if (ends.ok()) {
      checks[s] = CheckPeer(*ends, ours, tolerance);
    } else {
      checks[s].text = Message(ends.status());
    }
    fmt::print("{}\n", checks[s].text);
  }
  return checks;
}

}  // namespace

StatusOr<Rounds> RunSides(std::vector<SideEntry>* sides, const RoundPlan& plan,
                          StepReport* report, const StepTolerance& tolerance) {
  // Before the sides: they end before it goes.
  const TempDir dir;
  struct Ending {
    ~Ending() {
      for (SideEntry& entry : *sides) entry.side.reset();
    }
    std::vector<SideEntry>* sides;
  } const ending{sides};
  LOCKSTEP_ASSIGN_OR_RETURN(const std::vector<size_t> there,
                            StartSides(sides, dir.path, report));
  std::vector<pid_t> pids;
  for (const size_t s : there) {
    for (const pid_t pid : (*sides)[s].side->pids()) pids.push_back(pid);
  }
  Rounds result;
  result.samples.resize(sides->size());
  result.word.resize(sides->size());
  BusyRounds busy(plan.on_busy, plan.rounds);
  for (int round = 0, run = 0; round < plan.rounds; ++run) {
    const CpuReading before = ReadCpu(pids);
    std::vector<RoundOfSide> samples(sides->size());
    for (size_t turn = 0; turn < there.size(); ++turn) {
      const size_t s = there[(turn + static_cast<size_t>(run)) % there.size()];
      LOCKSTEP_ASSIGN_OR_RETURN(
          samples[s],
          (*sides)[s].side->RunRound(plan.turns, (*sides)[s].with_word, run));
    }
    const CpuShares shares = SharesBetween(before, ReadCpu(pids));
    const BusyRounds::Next next = busy.Judge(shares, round == 0);
    if (IsBusy(shares)) {
      fmt::print("round {}: {:.1f} % used by others, {:.1f} % stolen{}\n",
                 round, 100 * shares.foreign, 100 * shares.stolen,
                 next == BusyRounds::Next::kRepeat ? ": again" : "");
    }
    if (next == BusyRounds::Next::kGiveUp) {
      return Unavailable(
          "the machine stays busy: {} rounds were repeated; --force takes "
          "them as they are",
          busy.repeated());
    }
    if (next == BusyRounds::Next::kRepeat) continue;
    for (const size_t s : there) {
      if (round == 0) continue;
      result.samples[s].push_back(std::move(samples[s].gradients));
      if ((*sides)[s].with_word) {
        result.word[s].push_back(std::move(samples[s].word));
      }
    }
    ++round;
  }
  result.repeated = busy.repeated();
  result.kept_busy = busy.kept_busy();
  LOCKSTEP_ASSIGN_OR_RETURN(result.checks, EndSides(*sides, there, tolerance));
  return result;
}

std::vector<std::vector<double>> Column(const RoundSamples& samples,
                                        double Sample::*field) {
  std::vector<std::vector<double>> column;
  for (const std::vector<Sample>& round : samples) {
    std::vector<double>& values = column.emplace_back();
    for (const Sample& sample : round) values.push_back(sample.*field);
  }
  return column;
}

BenchResult StepResultOf(const std::string& id, const std::string& name,
                         const std::vector<std::vector<double>>& ours,
                         const std::vector<std::vector<double>>& theirs,
                         const Rounds& rounds, size_t peer, double must,
                         double aim) {
  BenchResult result;
  result.id = id;
  result.ranks = kStepRanks;
  result.peer = name;
  result.ours_seconds = ours;
  result.peer_seconds = theirs;
  result.verified = rounds.checks[0].good && rounds.checks[peer].good;
  result.checked = rounds.checks[0].text;
  if (peer != 0 && !rounds.checks[peer].text.empty()) {
    result.checked += "; " + rounds.checks[peer].text;
  }
  result.must = must;
  result.aim = aim;
  result.repeated_rounds = rounds.repeated;
  result.busy_rounds = rounds.kept_busy;
  return result;
}

void LimitByWord(const RoundSamples& word, BenchResult* result) {
  std::vector<double> seconds;
  for (const std::vector<Sample>& round : word) {
    for (const Sample& sample : round) seconds.push_back(sample.seconds);
  }
  result->limit_seconds = Percentile(std::move(seconds), 0.5);
  result->limit_what =
      "our own step with one 4-byte all-reduce instead, in this run";
}

RoundPlan PlanOf(const StepSettings& settings, RoundPlan plan) {
  if (settings.rounds > 0) plan.rounds = settings.rounds;
  if (settings.steps > 0) plan.turns.steps = settings.steps;
  plan.on_busy = settings.on_busy;
  return plan;
}

Status AgainstPeers(const Command& ours, const std::vector<StepPeer>& peers,
                    const RoundPlan& plan, const StepSettings& settings,
                    StepReport* report) {
  std::vector<SideEntry> sides;
  sides.push_back({std::make_unique<Side>("lockstep", Exporting(ours)), true});
  std::vector<StepPeer> asked;
  for (const StepPeer& peer : peers) {
    if (peer.id.find(settings.only) == std::string::npos) continue;
    asked.push_back(peer);
    if (peer.command) {
      sides.push_back({std::make_unique<Side>(peer.name, peer.command)});
    }
  }
  LOCKSTEP_ASSIGN_OR_RETURN(const Rounds run,
                            RunSides(&sides, PlanOf(settings, plan), report));
  const auto mine = Column(run.samples[0], &Sample::seconds);
  size_t next = 1;
  for (const StepPeer& peer : asked) {
    const size_t side = peer.command ? next++ : 0;
    const RoundSamples& theirs = peer.command ? run.samples[side] : run.word[0];
    if (theirs.empty()) continue;
    BenchResult result =
        StepResultOf(peer.id, peer.name, mine, Column(theirs, &Sample::seconds),
                     run, side, peer.must, peer.aim);
    if (peer.command) {
      LimitByWord(run.word[0], &result);
    } else {
      result.by_turns = true;
      result.paired = true;
    }
    report->results.push_back(std::move(result));
  }
  return OkStatus();
}

}  // namespace lockstep
