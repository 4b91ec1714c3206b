// Ranks of this host: processes that are forked before there is any thread, and
// where they find each other.
#ifndef LOCKSTEP_WORKER_BENCH_LOCAL_RANKS_H_
#define LOCKSTEP_WORKER_BENCH_LOCAL_RANKS_H_

#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "common/base/fd.h"
#include "worker/collective/communicator.h"

namespace lockstep::worker::bench {

// Runs fn(rank) in `ranks` processes of their own, which die with this one,
// and waits for all. When one ends with anything but 0, the others get `grace`
// seconds to notice it and are killed then. Returns the first rank's code that
// is not 0 (128 + signal where a signal ended it), else 0.
int RunRanks(int ranks, double grace, const std::function<int(int rank)>& fn);

// Keeps the calling thread on the index-th of the cores that it may use,
// counted round.
void PinToCore(int index);

// Keys and values in a file without a name that ranks share, so that nothing is
// left behind, however they end. Made before the fork, used by all behind it.
// Safe from any process and thread. Get polls: for moments when ranks form, not
// for more.
class SharedRendezvousStore final : public collective::RendezvousStore {
 public:
  static StatusOr<std::unique_ptr<SharedRendezvousStore>> Create();

  Status Put(const std::string& key, std::string_view value) override;
  StatusOr<std::string> Get(const std::string& key, MonoTime deadline) override;

 private:
  explicit SharedRendezvousStore(Fd file) : file_(std::move(file)) {}
  const Fd file_;
};

}  // namespace lockstep::worker::bench

#endif  // LOCKSTEP_WORKER_BENCH_LOCAL_RANKS_H_
