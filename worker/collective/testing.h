// For tests and benchmarks: stores in which ranks find each other, ranks as
// threads or processes, and what tests of several backends watch.
#ifndef LOCKSTEP_WORKER_COLLECTIVE_TESTING_H_
#define LOCKSTEP_WORKER_COLLECTIVE_TESTING_H_

#include <sys/types.h>

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "common/base/mutex.h"
#include "worker/collective/communicator.h"

namespace lockstep::worker::collective {

// Sanitizers are slow, keep what was freed, and need room on stacks.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kSanitized = true;
#elif defined(__has_feature)
inline constexpr bool kSanitized =
    __has_feature(address_sanitizer) || __has_feature(thread_sanitizer);
#else
inline constexpr bool kSanitized = false;
#endif

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

// Options for a rank that forms over `store` on the loopback, of backend
// $LOCKSTEP_TEST_BACKEND (tcp where it is not set), from modules in
// $LOCKSTEP_MODULE_DIR or the program's directory; 20 s to form. With several
// ranks, hierarchical puts the first half on one host, the others on another.
CommunicatorOptions TestOptions(int rank, int size, RendezvousStore* store);
// The same for a backend by name. "hierarchical_0012" is hierarchical with one
// sign for each rank: those with the same sign are on one host.
CommunicatorOptions TestOptionsOf(const std::string& backend, int rank,
                                  int size, RendezvousStore* store);

// Open files, threads and memory of this process, which must not grow.
struct Usage {
  int files = 0;
  int threads = 0;
  int mappings = 0;
  int64_t resident_kib = 0;
};
Usage UsageNow();
// OK with as many files and threads as in `before`, and at most 24 mappings and
// 8 MiB more (not looked at with sanitizers). Waits for threads that were
// joined and may still be listed for a moment.
Status CheckNoGrowth(const Usage& before);

// The time that a plain thread takes to run once it is woken: the median of a
// few. Where that is long, the machine is too busy for short measurements.
Duration WakeUpTime();

// Waits until `condition` is true, at most 20 s; false when it is not then.
bool AwaitTrue(const std::function<bool()>& condition);

// A communicator with a test or a benchmark in between: passes all on to the
// other, which derived classes see.
class ForwardingCommunicator : public Communicator {
 public:
  explicit ForwardingCommunicator(std::unique_ptr<Communicator> inner)
      : inner_(std::move(inner)) {}
  int rank() const override { return inner_->rank(); }
  int size() const override { return inner_->size(); }
  std::string_view backend() const override { return inner_->backend(); }
  ProgressMode progress() const override { return inner_->progress(); }
  std::string Plan() const override { return inner_->Plan(); }
  StatusOr<const Buffer*> Allocate(size_t bytes) override {
    return inner_->Allocate(bytes);
  }
  StatusOr<const Buffer*> Register(void* data, size_t bytes) override {
    return inner_->Register(data, bytes);
  }
  StatusOr<const Buffer*> AnyMemory() override { return inner_->AnyMemory(); }
  bool HasAllToAll() const override { return inner_->HasAllToAll(); }
  std::optional<PeerWait> CurrentWait() const override {
    return inner_->CurrentWait();
  }
  StatusOr<std::unique_ptr<Work>> Start(const Operation& operation,
                                        Stream stream) override {
    return inner_->Start(operation, stream);
  }
  void Abort(std::string_view reason) override { inner_->Abort(reason); }

 protected:
  const std::unique_ptr<Communicator> inner_;
};

// Entries of a directory such as /proc/self/fd, and memory that is present.
int CountEntries(const char* dir);
size_t CountResidentPages();

// Forms a rank's communicator.
using RankFormer = std::function<StatusOr<std::unique_ptr<Communicator>>(
    int rank, RendezvousStore* store)>;

// Ranks as threads of this process while they form, then seen from one thread.
// SIGPIPE is ignored from then on.
class FormedRanks {
 public:
  FormedRanks(int n, const RankFormer& form);
  // The first error of forming.
  const Status& status() const { return status_; }
  int size() const { return static_cast<int>(communicators_.size()); }
  Communicator* operator[](int rank) { return communicators_[rank].get(); }
  void Destroy(int rank) { communicators_[rank].reset(); }

 private:
  std::vector<std::unique_ptr<Communicator>> communicators_;
  Status status_;
};

// Memory that ranks which are processes share with their test: counters, and a
// rendezvous store.
class RankBoard {
 public:
  static constexpr int kRanks = 16;
  struct Counters {
    std::atomic<int> steps[kRanks];
    std::atomic<int64_t> ended[kRanks];  // nanoseconds of the monotonic clock
    std::atomic<int64_t> word;
    std::atomic<bool> abort;
  };

  RankBoard();
  ~RankBoard();
  RankBoard(const RankBoard&) = delete;
  RankBoard& operator=(const RankBoard&) = delete;

  Counters* operator->() const { return counters_; }
  const std::string& dir() const { return dir_; }

  // Runs `operation` again and again, counting steps, until an error, whose
  // code is the result. A second thread aborts when the board says so.
  int RunUntilError(Communicator* communicator, int rank,
                    const Operation& operation);
  // Whether the ranks below `n` have made that many steps.
  bool AllMade(int n, int steps) const;
  // Until the ranks below `n` make no more steps.
  bool AwaitStill(int n) const;
  Duration EndedAfter(int rank, MonoTime start) const;

 private:
  std::string dir_;
  Counters* counters_ = nullptr;
};

}  // namespace lockstep::worker::collective

#endif  // LOCKSTEP_WORKER_COLLECTIVE_TESTING_H_
