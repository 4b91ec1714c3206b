#include "tests/bench/model/measure.h"

#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <thread>
#include <vector>

#include "worker/collective/factory/form_communicator.h"

namespace lockstep::model {
namespace {

using std::chrono::seconds;

constexpr size_t kLargeBytes = 16 << 20;
constexpr Duration kTimeout = seconds(20);
constexpr int kWarmUps = 5;

// Where two processes find each other and one leaves what it measured: shared
// pages, so that nothing has to be found or removed.
struct Board {
  static constexpr int kEntries = 64;
  struct Entry {
    std::atomic<bool> written;
    char key[128];
    char value[4096];
    size_t bytes;
  };
  std::atomic<int> next;
  Entry entries[kEntries];
  double small_seconds;
  double large_seconds;
  char error[256];
};

class BoardStore final : public RendezvousStore {
 public:
  explicit BoardStore(Board* board) : board_(board) {}

  Status Put(const std::string& key, std::string_view value) override {
    const int number = board_->next.fetch_add(1);
    if (number >= Board::kEntries || key.size() >= sizeof(Board::Entry::key) ||
        value.size() > sizeof(Board::Entry::value)) {
      return ResourceExhausted("no room for key {}", key);
    }
    Board::Entry& entry = board_->entries[number];
    std::memcpy(entry.key, key.c_str(), key.size() + 1);
    std::memcpy(entry.value, value.data(), value.size());
    entry.bytes = value.size();
    entry.written.store(true, std::memory_order_release);
    return OkStatus();
  }

  StatusOr<std::string> Get(const std::string& key,
                            MonoTime deadline) override {
    for (;;) {
      for (const Board::Entry& entry : board_->entries) {
        if (entry.written.load(std::memory_order_acquire) && key == entry.key) {
          return std::string(entry.value, entry.bytes);
        }
      }
      if (MonotonicNow() >= deadline) {
        return DeadlineExceeded("no rank wrote key {} in time", key);
      }
      std::this_thread::sleep_for(std::chrono::microseconds(200));
    }
  }

 private:
  Board* const board_;
};

Status RunRank(int rank, const std::string& backend, Board* board) {
  BoardStore store(board);
  CommunicatorOptions options;
  options.backend = backend;
  options.rank = rank;
  options.size = 2;
  options.label = "measuring " + backend;
  options.forming_deadline = MonotonicNow() + kTimeout;
  options.rendezvous = &store;
  LOCKSTEP_ASSIGN_OR_RETURN(const auto communicator, FormCommunicator(options));
  LOCKSTEP_ASSIGN_OR_RETURN(const double small,
                            MedianAllReduce(communicator.get(), 4, 400));
  LOCKSTEP_ASSIGN_OR_RETURN(
      const double large, MedianAllReduce(communicator.get(), kLargeBytes, 15));
  if (rank == 0) {
    board->small_seconds = small;
    board->large_seconds = large;
  }
  // Nobody leaves while the other still measures.
  return Run(communicator.get(), {.kind = CollectiveKind::kBarrier}, kTimeout);
}

// The exit code is 0 or 1; the first error stays on the board.
int RankMain(int rank, const std::string& backend, Board* board) {
  const Status status = RunRank(rank, backend, board);
  if (status.ok()) return 0;
  const std::string text = Message(status).substr(0, sizeof(board->error) - 1);
  std::memcpy(board->error, text.c_str(), text.size() + 1);
  return 1;
}

}  // namespace

StatusOr<double> MedianAllReduce(Communicator* communicator, size_t bytes,
                                 int times) {
  LOCKSTEP_ASSIGN_OR_RETURN(const Buffer* buffer,
                            communicator->Allocate(bytes));
  const Operation operation{
      .slice = {buffer, 0, bytes / sizeof(float), DataType::kFloat32}};
  std::vector<double> taken;
  for (int i = 0; i < times + kWarmUps; ++i) {
    const MonoTime start = MonotonicNow();
    LOCKSTEP_RETURN_IF_ERROR(Run(communicator, operation, kTimeout));
    if (i >= kWarmUps) {
      taken.push_back(
          std::chrono::duration<double>(MonotonicNow() - start).count());
    }
  }
  std::nth_element(taken.begin(), taken.begin() + taken.size() / 2,
                   taken.end());
  return taken[taken.size() / 2];
}

StatusOr<Link> MeasureLink(const std::string& backend) {
  void* memory = mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE,
                      MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return ErrnoStatus(errno, "mapping a board");
  auto* const board = new (memory) Board{};
  std::vector<pid_t> ranks;
  fflush(nullptr);
  for (int rank = 0; rank < 2; ++rank) {
    const pid_t pid = fork();
    if (pid == 0) {
      signal(SIGPIPE, SIG_IGN);
      _exit(RankMain(rank, backend, board));
    }
    if (pid > 0) ranks.push_back(pid);
  }
  bool good = ranks.size() == 2;
  for (const pid_t pid : ranks) {
    int status = 0;
    if (waitpid(pid, &status, 0) != pid || status != 0) good = false;
  }
  auto link =
      good ? LinkOf(board->small_seconds, board->large_seconds, kLargeBytes)
           : Unavailable("measuring {} failed: {}", backend,
                         std::string(board->error));
  munmap(memory, sizeof(Board));
  return link;
}

}  // namespace lockstep::model
