// L1, L2, F1 and F3: until ranks run.
#include <signal.h>
#include <stdlib.h>
#include <sys/stat.h>

#include <optional>
#include <random>
#include <thread>

#include "client/local/ports.h"
#include "common/base/file.h"
#include "tests/bench/cluster_rows.h"

namespace lockstep {
namespace {

constexpr int kRanks = 2;
constexpr int kLaunchRounds = 8;
constexpr int kLaunchSamples = 10;

Words LockstepCommand(const Words& arguments) {
  return Words{BinDir() + "/lockstep"} + arguments;
}

Words SubmitCommand(const std::string& name, const Words& argv) {
  return LockstepCommand(Words{"submit", "--detach", "--name", name, "--tasks",
                               "2", "--cpus", "1", "--"} +
                         argv);
}

std::string NameOfSlot(int slot) { return "job" + std::to_string(slot); }

// One job of ours: `submit` starts it with the name and the board's arguments
// for its ranks. Seconds until both have written, after which it succeeds.
Sampler OursUntilBoth(RowRun* run,
                      const std::function<Status(const std::string& name,
                                                 const Words& board)>& submit) {
  return [=]() -> StatusOr<double> {
    const int slot = run->board.Take(kRanks);
    const std::string name = NameOfSlot(slot);
    const int64_t start = MonotonicNanos();
    LOCKSTEP_RETURN_IF_ERROR(submit(name, run->board.Arguments(slot)));
    LOCKSTEP_ASSIGN_OR_RETURN(const double took,
                              run->board.SecondsUntil(start, slot, kRanks));
    LOCKSTEP_RETURN_IF_ERROR(run->ours->AwaitSuccess(name).status());
    return took;
  };
}

// The same by the command `argv`.
Sampler OursByCommand(RowRun* run,
                      const std::function<Words(const std::string& name,
                                                const Words& board)>& argv) {
  return OursUntilBoth(run, [=](const std::string& name, const Words& board) {
    return RunProgram(argv(name, board), run->ours->environment());
  });
}

// The same of Slurm: `argv` is the command, whose `writers` processes write.
Sampler SlurmUntilAll(RowRun* run, int writers,
                      const std::function<Words(const Words& board)>& argv) {
  if (!run->slurm) return nullptr;
  return [=]() -> StatusOr<double> {
    const int slot = run->board.Take(kRanks);
    const Words command = argv(run->board.Arguments(slot));
    const int64_t start = MonotonicNanos();
    LOCKSTEP_RETURN_IF_ERROR(run->slurm->Run(command));
    LOCKSTEP_ASSIGN_OR_RETURN(const double took,
                              run->board.SecondsUntil(start, slot, writers));
    LOCKSTEP_RETURN_IF_ERROR(run->slurm->AwaitEmptyQueue());
    return took;
  };
}

// Submits a plain command that runs `program` on both ranks.
Sampler SubmittedProgram(RowRun* run, const std::string& program,
                         v1::JobKind kind = v1::JOB_KIND_PROGRAM) {
  return OursUntilBoth(run, [=](const std::string& name, const Words& board) {
    v1::JobSpec spec =
        BenchCluster::Program(name, kRanks, 1, Words{program} + board);
    spec.set_kind(kind);
    return run->ours->Submit(spec);
  });
}

}  // namespace

Status RunL1(RowRun* run) {
  LOCKSTEP_RETURN_IF_ERROR(run->StartBoth(2));
  const std::string probe = BenchProgram("task_probe");
  const auto command =
      OursByCommand(run, [=](const std::string& name, const Words& board) {
        return SubmitCommand(name, Words{probe} + board);
      });
  const auto srun = SlurmUntilAll(run, kRanks, [=](const Words& board) {
    return Words{"srun", "--quiet", "-n2", probe} + board;
  });
  const auto sbatch = SlurmUntilAll(run, 1, [=](const Words& board) {
    return Words{
        "sbatch", "--quiet", "-n2", "--output=/dev/null",
        fmt::format("--wrap=exec {} {} {}", probe, board[0], board[1])};
  });
  const std::string with_srun = run->Slurm("srun -n2");
  const std::string with_sbatch = run->Slurm("sbatch");
  return run->Compare(kLaunchRounds, kLaunchSamples,
                      {SubmittedProgram(run, probe), srun, command, sbatch},
                      {{"L1-api", with_srun, 0, 1, kRanks},
                       {"L1-command", with_srun, 2, 1, kRanks},
                       {"L1-api-b", with_sbatch, 0, 3, kRanks},
                       {"L1-command-b", with_sbatch, 2, 3, kRanks}});
}

Status RunL2(RowRun* run) {
  LOCKSTEP_RETURN_IF_ERROR(run->StartBoth(2));
  const std::string peer = BenchProgram("gloo_allreduce");
  const bool has_peer = RealFileSystem()->Exists(peer);
  if (!has_peer) {
    run->missing =
        NotFound("there is no {}: install libgloo-dev and build again", peer);
  }
  const auto srun = SlurmUntilAll(run, kRanks, [=](const Words& board) {
    const std::string store = run->dir.path() + "/" + board[1];
    RealFileSystem()->MakeDirs(store, 0755).IgnoreError();
    return Words{"srun", "--quiet", "-n2", peer, "once", store} + board;
  });
  return run->Compare(
      kLaunchRounds, kLaunchSamples,
      {SubmittedProgram(run, BenchProgram("collective_probe"),
                        v1::JOB_KIND_NATIVE),
       has_peer ? srun : nullptr},
      {{"L2", run->Slurm("srun -n2, Gloo mesh over a FileStore"), 0, 1, kRanks,
        sizeof(float)}});
}

namespace {

// What F1 submits.
struct FrontDoor {
  std::string folder;
  v1::Package package;
  v1::JobSpec spec;  // What a TrainingJob becomes.
};

Sampler SubmittedTraining(RowRun* run, const FrontDoor& door,
                          const std::string& runtime) {
  return OursUntilBoth(
      run, [run, &door, runtime](const std::string& name, const Words& board) {
        return SubmitTraining(run->ours->client(), name, door.package, runtime,
                              kRanks - 1, board);
      });
}

Sampler SubmittedSpec(RowRun* run, const FrontDoor& door) {
  return OursUntilBoth(
      run, [run, &door](const std::string& name, const Words& board) {
        v1::JobSpec spec = door.spec;
        spec.set_name(name);
        for (v1::RoleSpec& role : *spec.mutable_roles()) {
          role.set_argv(role.argv_size() - 1, board[1]);
        }
        return run->ours->Submit(spec);
      });
}

Status OpenFrontDoor(RowRun* run, FrontDoor* door) {
  const std::string probe = BenchProgram("task_probe");
  // Named as an interpreter is, so that it is asked whether it finds the
  // module, which CPython answers.
  const std::string checking = run->dir.path() + "/python3";
  LOCKSTEP_RETURN_IF_ERROR(RealFileSystem()->WriteAtomic(
      checking, "#!/bin/sh\n[ \"$1\" = -m ] && exec " + probe +
                    " \"$@\"\nexec /usr/bin/python3 \"$@\"\n"));
  if (chmod(checking.c_str(), 0755) != 0) return Internal("chmod {}", checking);
  LOCKSTEP_RETURN_IF_ERROR(
      run->Start(2, SiteTable(1, {{"probe", probe}, {"checking", checking}})));
  LOCKSTEP_ASSIGN_OR_RETURN(door->folder, WriteTrainer(run->dir.path()));
  LOCKSTEP_ASSIGN_OR_RETURN(door->package,
                            run->ours->UploadTrainer(door->folder));
  // The first job brings the package to both nodes.
  LOCKSTEP_RETURN_IF_ERROR(SubmittedTraining(run, *door, "probe")().status());
  LOCKSTEP_ASSIGN_OR_RETURN(const v1::Job job,
                            run->ours->client()->GetJob(NameOfSlot(0)));
  door->spec = job.spec();
  return OkStatus();
}

}  // namespace

Status RunF1(RowRun* run) {
  FrontDoor door;
  LOCKSTEP_RETURN_IF_ERROR(OpenFrontDoor(run, &door));
  const std::string probe = BenchProgram("task_probe");
  const auto training = [&](const std::string& name, const Words& board) {
    return LockstepCommand(
        Words{"jobs", "submit", "training", name, "--scale-tier", "custom",
              "--master-machine-type", "bench", "--worker-machine-type",
              "bench", "--worker-count", "1", "--package-path", door.folder,
              "--module-name", "trainer.task", "--runtime", "probe", "--"} +
        board);
  };
  const auto plain = [&](const std::string& name, const Words& board) {
    return SubmitCommand(name, Words{probe} + board);
  };
  return run->Compare(
      kLaunchRounds, kLaunchSamples,
      {SubmittedTraining(run, door, "probe"), SubmittedProgram(run, probe),
       SubmittedSpec(run, door), SubmittedTraining(run, door, "checking"),
       OursByCommand(run, training), OursByCommand(run, plain)},
      {{"F1", "SubmitJob of a plain command", 0, 1, kRanks},
       {"F1-same", "SubmitJob of the same spec", 0, 2, kRanks},
       {"F1-check", "the same without that question", 3, 0, kRanks},
       {"F1-command", "lockstep submit --detach", 4, 5, kRanks}});
}

namespace {

constexpr int kRestartRounds = 6;
constexpr int kRestartSamples = 8;
constexpr int kStartSlots = 2 * kRanks;  // Of one start: times, then pids.

// Waits until both ranks of the start at `slot` run, kills the last one at a
// random moment; seconds until both run again, at the next slots.
StatusOr<double> KillOne(RowRun* run, int slot) {
  static std::mt19937_64 random(1);
  LOCKSTEP_RETURN_IF_ERROR(run->board.WaitAll(slot, kStartSlots).status());
  std::this_thread::sleep_for(std::chrono::microseconds(
      std::uniform_int_distribution<>(200'000, 300'000)(random)));
  const int64_t start = MonotonicNanos();
  const auto pid = static_cast<pid_t>(run->board.Get(slot + kStartSlots - 1));
  if (kill(pid, SIGKILL) != 0) {
    return Internal("the rank has ended before it was killed");
  }
  return run->board.SecondsUntil(start, slot + kStartSlots, kRanks);
}

// A fresh job.
StatusOr<double> RestartOurs(RowRun* run) {
  cli::Client* const client = run->ours->client();
  const int slot = run->board.Take(2 * kStartSlots);
  const std::string name = "restart" + std::to_string(slot);
  const auto await_running = [&] {
    return AwaitTrue(name + " does not run", [&]() -> StatusOr<bool> {
      LOCKSTEP_ASSIGN_OR_RETURN(const v1::Job job, client->GetJob(name));
      return job.state() == v1::JOB_STATE_RUNNING;
    });
  };
  v1::JobSpec spec =
      BenchCluster::Program(name, kRanks, 1,
                            Words{BenchProgram("task_probe"), "restart"} +
                                run->board.Arguments(slot));
  spec.set_restart_budget(3);
  LOCKSTEP_RETURN_IF_ERROR(run->ours->Submit(spec));
  LOCKSTEP_RETURN_IF_ERROR(await_running());
  LOCKSTEP_ASSIGN_OR_RETURN(const double took, KillOne(run, slot));
  LOCKSTEP_RETURN_IF_ERROR(await_running());
  LOCKSTEP_ASSIGN_OR_RETURN(const v1::Job job, client->GetJob(name));
  if (job.restarts() != 1) {
    return Internal("{} has restarted {} times", name, job.restarts());
  }
  LOCKSTEP_RETURN_IF_ERROR(run->ours->CancelAndWait(name));
  return took;
}

// One agent with both ranks, restarted each `samples` kills.
class Torchrun {
 public:
  Torchrun(RowRun* run, std::string python)
      : run_(run), python_(std::move(python)) {}
  ~Torchrun() { Stop(); }
  StatusOr<double> Kill() {
    if (kills_++ % kRestartSamples == 0) LOCKSTEP_RETURN_IF_ERROR(Start());
    return KillOne(run_, std::exchange(slot_, slot_ + kStartSlots));
  }

 private:
  void Stop() {
    if (process_) (void)StopProcess(*process_, std::chrono::seconds(10));
  }
  Status Start() {
    Stop();
    LOCKSTEP_ASSIGN_OR_RETURN(const auto ports, cli::ChoosePorts(1));
    slot_ = run_->board.Take((kRestartSamples + 1) * kStartSlots);
    SpawnOptions spawn;
    spawn.program = python_;
    spawn.argv = Words{python_,
                       "-m",
                       "torch.distributed.run",
                       "--nnodes",
                       "1",
                       "--nproc-per-node",
                       std::to_string(kRanks),
                       "--max-restarts",
                       std::to_string(kRestartSamples + 1),
                       "--master-port",
                       std::to_string(ports[0]),
                       "--no-python",
                       BenchProgram("task_probe"),
                       "restart"} +
                 run_->board.Arguments(slot_);
    spawn.env = CurrentEnvironment() + Words{"OMP_NUM_THREADS=1"};
    spawn.stdout_path = spawn.stderr_path = run_->dir.path() + "/torchrun";
    LOCKSTEP_ASSIGN_OR_RETURN(process_, Spawn(spawn));
    return OkStatus();
  }

  RowRun* const run_;
  const std::string python_;
  std::optional<Process> process_;
  int slot_ = 0;
  int kills_ = 0;
};

}  // namespace

Status RunF3(RowRun* run) {
  const char* const frameworks = getenv("LOCKSTEP_FRAMEWORKS");
  const std::string python = JoinPath(
      frameworks == nullptr ? "/nonexistent" : frameworks, "torch/bin/python");
  Torchrun torchrun(run, python);
  std::string version;
  Sampler peer;
  if (RealFileSystem()->Exists(python)) {
    LOCKSTEP_ASSIGN_OR_RETURN(
        version,
        OutputOf({python, "-c",
                  "import importlib.metadata as m; print(m.version('torch'))"},
                 CurrentEnvironment()));
    fmt::print("VERSION torch {}\n", version);
    peer = [&] { return torchrun.Kill(); };
  } else {
    run->missing = NotFound(
        "no torchrun: there is no {}; run tests/frameworks/setup DIR and set "
        "LOCKSTEP_FRAMEWORKS=DIR",
        python);
  }
  LOCKSTEP_RETURN_IF_ERROR(run->Start(2));
  return run->Compare(kRestartRounds, kRestartSamples,
                      {[&] { return RestartOurs(run); }, peer},
                      {{"F3", "torchrun of torch " + version, 0, 1, kRanks}});
}

}  // namespace lockstep
