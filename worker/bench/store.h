// Where ranks that were forked from one process find each other: keys and
// values in memory that they share, so that nothing is left behind, however
// they end.
#ifndef LOCKSTEP_WORKER_BENCH_STORE_H_
#define LOCKSTEP_WORKER_BENCH_STORE_H_

#include <cstddef>
#include <memory>
#include <string>

#include "worker/collective/communicator.h"

namespace lockstep {

// Made before the fork, used by all behind it. Safe from any process and
// thread. Get polls: for moments when ranks form, not for more.
class SharedRendezvousStore final : public RendezvousStore {
 public:
  // ResourceExhausted: no memory.
  static StatusOr<std::unique_ptr<SharedRendezvousStore>> Create();
  ~SharedRendezvousStore() override;
  SharedRendezvousStore(const SharedRendezvousStore&) = delete;
  SharedRendezvousStore& operator=(const SharedRendezvousStore&) = delete;

  // ResourceExhausted: all values together exceed 64 MiB.
  Status Put(const std::string& key, std::string_view value) override;
  StatusOr<std::string> Get(const std::string& key, MonoTime deadline) override;

 private:
  struct Entry;
  struct Log;
  explicit SharedRendezvousStore(Log* log) : log_(log) {}
  Log* const log_;
};

}  // namespace lockstep

#endif  // LOCKSTEP_WORKER_BENCH_STORE_H_
