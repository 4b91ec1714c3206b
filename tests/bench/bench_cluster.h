// What benchmarks of the control plane stand on: a lockstep cluster and Slurm,
// both on this machine with their files on its disk, and programs that say
// when they began.
#ifndef LOCKSTEP_TESTS_BENCH_BENCH_CLUSTER_H_
#define LOCKSTEP_TESTS_BENCH_BENCH_CLUSTER_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "client/lib/client.h"
#include "client/local/local_cluster.h"
#include "common/base/clock.h"
#include "common/base/status.h"
#include "common/os/process.h"

namespace lockstep {

// A directory under /var/tmp (a disk, so that fsync costs what it costs),
// removed at the end.
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

// A coordinator and worker daemons, mTLS on, ended with the object.
class BenchCluster {
 public:
  // `options.dir` and `options.bin_dir` are filled in.
  static StatusOr<std::unique_ptr<BenchCluster>> Start(
      LocalClusterOptions options);
  ~BenchCluster();

  LocalCluster* cluster() { return cluster_.get(); }
  Client* client() { return client_.get(); }
  const std::string& dir() const { return dir_.path(); }
  // Certificates and address for `lockstep`, as environment.
  std::vector<std::string> environment() const;

  // `count` tasks of `argv`, each of which asks for `cpus`.
  static v1::JobSpec Program(const std::string& name, int count, double cpus,
                             std::vector<std::string> argv);

 private:
  BenchCluster() = default;
  BenchDir dir_;
  std::unique_ptr<LocalCluster> cluster_;
  std::unique_ptr<Client> client_;
};

// NotFound, with what to install, where the machine has no Slurm.
class SlurmPeer {
 public:
  static StatusOr<std::unique_ptr<SlurmPeer>> Start();
  ~SlurmPeer();

  const std::vector<std::string>& environment() const { return environment_; }
  // What Slurm it is, for the report.
  const std::string& version() const { return version_; }
  pid_t controller() const;
  pid_t node() const;
  // Where slurmctld keeps its jobs.
  std::string job_state_path() const;
  // Where slurmctld listens, on the loopback.
  uint16_t control_port() const;

 private:
  SlurmPeer() = default;
  BenchDir dir_;
  std::vector<std::string> environment_;
  std::string version_;
};

// Times in a file that other processes map.
class Board {
 public:
  Board(const std::string& path, int slots);
  ~Board();
  Board(const Board&) = delete;
  Board& operator=(const Board&) = delete;

  const std::string& path() const { return path_; }
  int slots() const { return slots_; }
  // Nanoseconds of the monotonic clock; 0 while the slot is empty.
  int64_t Get(int slot) const;
  // The latest of slots [first, first + count) once all are there;
  // DeadlineExceeded after 30 s. Looks every 50 us.
  StatusOr<int64_t> WaitAll(int first, int count) const;

 private:
  const std::string path_;
  const int slots_;
  int64_t* times_ = nullptr;
};

// Whether somebody takes connections there. A client that was refused asks
// again only after a while: squeue after 1 s, ours after 0.2 s.
bool Listens(uint16_t loopback_port);

// Beside this program: bench/NAME and bin/NAME.
std::string BenchProgram(const std::string& name);
std::string BinDir();

// Runs it to its end; FailedPrecondition, with the last line of its stderr,
// when that is not 0.
Status RunProgram(const std::vector<std::string>& argv,
                  const std::vector<std::string>& environment,
                  Duration patience = std::chrono::seconds(120));
StatusOr<std::string> OutputOf(const std::vector<std::string>& argv,
                               const std::vector<std::string>& environment,
                               Duration patience = std::chrono::seconds(120));

// As RunProgram; its stdout goes to `sink` in pieces, while it runs.
Status StreamOutput(const std::vector<std::string>& argv,
                    const std::vector<std::string>& environment,
                    Duration patience,
                    const std::function<void(std::string_view)>& sink);

// user + system seconds and resident bytes of a process now.
struct ProcessUse {
  double cpu_seconds = 0;
  int64_t resident_bytes = 0;
};
StatusOr<ProcessUse> UseOf(pid_t pid);

// Flags that every benchmark has: [--json FILE]. Exits with 2 on others.
struct BenchFlags {
  std::string json;
};
BenchFlags ParseBenchFlags(int argc, char** argv);

// Prints why it failed and gives main's result.
int BenchMain(const Status& status);

}  // namespace lockstep

#endif  // LOCKSTEP_TESTS_BENCH_BENCH_CLUSTER_H_
