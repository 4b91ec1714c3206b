// What the rows of the control plane stand on: a lockstep cluster and Slurm,
// both on this machine with their files on its disk, and programs that write to
// a board when they began.
#ifndef LOCKSTEP_TESTS_BENCH_CLUSTER_SUPPORT_H_
#define LOCKSTEP_TESTS_BENCH_CLUSTER_SUPPORT_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "client/lib/client.h"
#include "client/local/local_cluster.h"
#include "client/package/pack.h"
#include "common/base/clock.h"
#include "common/base/status.h"
#include "common/os/process.h"
#include "common/pki/ca.h"
#include "common/rpc/channel.h"

namespace lockstep {

using Words = std::vector<std::string>;

inline Words operator+(Words a, const Words& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

inline double SecondsSince(int64_t start) {
  return static_cast<double>(MonotonicNanos() - start) / 1e9;
}

// The smallest value that `percent` % of them do not exceed.
double Percentile(std::vector<double> values, int percent);

// Looks every `pause` until `done`; DeadlineExceeded, with `what`, after 60 s.
Status AwaitTrue(const std::string& what,
                 const std::function<StatusOr<bool>()>& done,
                 Duration pause = std::chrono::milliseconds(2));

// A directory under /var/tmp (a disk, so that fsync costs what it costs) or
// $LOCKSTEP_BENCH_DIR, removed at the end.
class BenchDir {
 public:
  BenchDir();
  ~BenchDir();
  BenchDir(const BenchDir&) = delete;
  BenchDir& operator=(const BenchDir&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

// A coordinator and worker daemons of two cores, mTLS on, ended with the
// object.
class BenchCluster {
 public:
  // `site`: its table of machines and runtimes (SiteTable); empty: its own.
  static StatusOr<std::unique_ptr<BenchCluster>> Start(
      int workers, const std::string& site = "");
  ~BenchCluster();

  cli::LocalCluster* cluster() { return cluster_.get(); }
  cli::Client* client() { return client_.get(); }
  // Certificates and address for `lockstep`, as environment.
  Words environment() const;

  Status Submit(const v1::JobSpec& spec) {
    return client_->SubmitJob(spec).status();
  }
  // Waits until the job has succeeded; Internal, with why, where it has not.
  StatusOr<v1::Job> AwaitSuccess(const std::string& name);
  Status CancelAndWait(const std::string& name);

  // `count` tasks of `argv`, each of which asks for `cpus`.
  static v1::JobSpec Program(const std::string& name, int count, double cpus,
                             const Words& argv);

  // As the API has it; uploaded unless it is there.
  StatusOr<v1::Package> Upload(const cli::PackedPackage& packed);
  // PackTrainer's of a folder that WriteTrainer makes.
  StatusOr<v1::Package> UploadTrainer(const std::string& folder);

  // A connection of its own for another identity.
  StatusOr<std::shared_ptr<grpc::Channel>> Connect(
      const pki::CertificateAuthority& ca, const pki::Identity& identity,
      const std::string& target = "");
  StatusOr<pki::CertificateAuthority> Authority() const;

 private:
  BenchCluster() = default;
  BenchDir dir_;
  std::unique_ptr<cli::LocalCluster> cluster_;
  std::unique_ptr<cli::Client> client_;
};

// The machine "bench", whose tasks reserve `cpus`, and `runtimes` (name ->
// interpreter). An interpreter's own start takes longer than everything that
// lockstep does before it, so interpreters are small programs here.
std::string SiteTable(double cpus,
                      const std::map<std::string, std::string>& runtimes);
// A folder "trainer" with task.py below `dir`; returns its path.
StatusOr<std::string> WriteTrainer(const std::string& dir);
StatusOr<cli::PackedPackage> PackTrainer(const std::string& folder);
// Submits a chief and `workers` workers on machines "bench", which run
// trainer.task of the package by the interpreter `runtime`.
Status SubmitTraining(cli::Client* client, const std::string& name,
                      const v1::Package& package, const std::string& runtime,
                      int workers, const Words& args);

// NotFound, with what to install, where the machine has no Slurm.
class SlurmPeer {
 public:
  static StatusOr<std::unique_ptr<SlurmPeer>> Start();
  ~SlurmPeer();

  const Words& environment() const { return environment_; }
  // What Slurm it is, for the report.
  const std::string& version() const { return version_; }
  // Runs a command of Slurm's, as RunProgram says.
  Status Run(const Words& argv) const;
  // Of slurmctld or slurmd; 0: it does not run.
  pid_t Pid(const std::string& daemon) const;
  // Where slurmctld keeps its jobs.
  std::string job_state_path() const {
    return dir_.path() + "/state/job_state";
  }
  // Where slurmctld listens, on the loopback.
  uint16_t control_port() const;
  Status AwaitEmptyQueue();

 private:
  SlurmPeer() = default;
  BenchDir dir_;
  Words environment_;
  std::string version_;
};

// Times in a file that other processes map.
class Board {
 public:
  explicit Board(const std::string& path);
  ~Board();
  Board(const Board&) = delete;
  Board& operator=(const Board&) = delete;

  const std::string& path() const { return path_; }
  // The first of `count` slots that were not taken yet.
  int Take(int count) { return std::exchange(next_, next_ + count); }
  // Nanoseconds of the monotonic clock; 0 while the slot is empty.
  int64_t Get(int slot) const {
    return __atomic_load_n(&times_[slot], __ATOMIC_ACQUIRE);
  }
  // The latest of slots [first, first + count) once all are there;
  // DeadlineExceeded after 60 s. Looks every 50 us.
  StatusOr<int64_t> WaitAll(int first, int count) const;
  // WaitAll's, less `start`, in seconds.
  StatusOr<double> SecondsUntil(int64_t start, int first, int count) const;
  // The arguments of a program that writes to slots from `first` on.
  Words Arguments(int first) const { return {path_, std::to_string(first)}; }

 private:
  const std::string path_;
  int next_ = 0;
  int64_t* times_ = nullptr;
};

// Until a server takes connections there. A client that was refused asks again
// only after a while: squeue after 1 s, ours after 0.2 s.
Status AwaitListening(int loopback_port);

// Beside this program: bench/NAME and bin/NAME.
std::string BenchProgram(const std::string& name);
std::string BinDir();

// Runs it to its end; FailedPrecondition, with the last line of its stderr,
// when that is not 0. Its stdout goes to `sink` in pieces, while it runs.
Status RunProgram(const Words& argv, const Words& environment,
                  const std::function<void(std::string_view)>& sink = nullptr,
                  Duration patience = std::chrono::seconds(600));
// Its stdout, without newlines at the end.
StatusOr<std::string> OutputOf(const Words& argv, const Words& environment);

// user + system seconds and resident bytes of a process now.
struct ProcessUse {
  double cpu_seconds = 0;
  double resident_bytes = 0;
};
StatusOr<ProcessUse> UseOf(pid_t pid);

}  // namespace lockstep

#endif  // LOCKSTEP_TESTS_BENCH_CLUSTER_SUPPORT_H_
