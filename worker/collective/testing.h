// For tests and benchmarks: stores in which ranks find each other, and ranks
// as threads or processes.
#ifndef LOCKSTEP_WORKER_COLLECTIVE_TESTING_H_
#define LOCKSTEP_WORKER_COLLECTIVE_TESTING_H_

#include <sys/types.h>

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "common/base/mutex.h"
#include "worker/collective/communicator.h"

namespace lockstep {

// Ranks that are threads of one process. Safe from any thread.
class MapRendezvousStore final : public RendezvousStore {
 public:
  Status Put(const std::string& key, std::string_view value) override;
  StatusOr<std::string> Get(const std::string& key, MonoTime deadline) override;

 private:
  Mutex mu_;
  CondVar changed_;
  std::map<std::string, std::string> values_ ABSL_GUARDED_BY(mu_);
};

// Ranks that are processes of one host: files in a directory, which the
// caller makes and removes. Polls every millisecond.
class DirectoryRendezvousStore final : public RendezvousStore {
 public:
  explicit DirectoryRendezvousStore(std::string dir) : dir_(std::move(dir)) {}
  Status Put(const std::string& key, std::string_view value) override;
  StatusOr<std::string> Get(const std::string& key, MonoTime deadline) override;

 private:
  std::string PathOf(const std::string& key) const;
  const std::string dir_;
};

// Runs fn(rank) for ranks 0..n-1 on threads of their own and joins them.
void SpawnRanks(int n, const std::function<void(int rank)>& fn);

// Child processes that run fn(rank) and exit with its result. Fork them
// before this process has threads. The destructor kills and reaps what is
// left.
class RankProcesses {
 public:
  RankProcesses(int n, const std::function<int(int rank)>& fn);
  ~RankProcesses();
  RankProcesses(const RankProcesses&) = delete;
  RankProcesses& operator=(const RankProcesses&) = delete;

  pid_t pid(int rank) const { return pids_[rank]; }
  void Signal(int rank, int signal);
  // The exit code, 128 + signal, or -1 when it still runs at `deadline`.
  int Join(int rank, MonoTime deadline);

 private:
  std::vector<pid_t> pids_;  // 0 once reaped
};

// Options for a rank that forms over `store` on the loopback, from modules in
// $LOCKSTEP_MODULE_DIR or beside the program; 20 s to form.
CommunicatorOptions TestOptions(int rank, int size, RendezvousStore* store);

MonoTime Now();

}  // namespace lockstep

#endif  // LOCKSTEP_WORKER_COLLECTIVE_TESTING_H_
