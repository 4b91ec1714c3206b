// The only path for writes to the store. It numbers commits, tracks whether the
// store can write, and keeps the idempotency cache equal to the store.
// Thread-compatible; guarded by the coordinator's lock.
#ifndef LOCKSTEP_SERVER_COORDINATOR_STORE_WRITER_H_
#define LOCKSTEP_SERVER_COORDINATOR_STORE_WRITER_H_

#include <cstdint>
#include <vector>

#include "common/base/clock.h"
#include "common/base/status.h"
#include "server/coordinator/idempotency_cache.h"
#include "server/coordinator/observer.h"
#include "server/coordinator/snapshot.h"
#include "server/store/store.h"

namespace lockstep::server {

class StoreWriter {
 public:
  // `store`, `clock` and `observer`, which may be null, outlive this object.
  StoreWriter(Store* store, const Clock* clock, CoordinatorObserver* observer,
              const IdempotencyLimits& limits)
      : store_(store), clock_(clock), observer_(observer), answers_(limits) {}

  // Reads the store. Keeps the version and the answered requests, which are
  // empty in the returned snapshot. Errors as in Store::Load.
  StatusOr<StoreSnapshot> Load();
  // Numbers and writes the batch, then updates the answered requests. Errors as
  // in Store::Commit.
  Status Commit(StoreBatch* batch);

  // The version of the last commit.
  int64_t version() const { return version_; }
  const IdempotencyCache& answers() const { return answers_; }
  // False from a failed commit until the next successful one.
  bool healthy() const { return healthy_; }
  // Aborted if another coordinator has opened the store.
  const Status& taken_over() const { return taken_over_; }
  const CommitStats& stats() const { return stats_; }

 private:
  Store* const store_;
  const Clock* const clock_;
  CoordinatorObserver* const observer_;
  IdempotencyCache answers_;
  int64_t version_ = 0;
  bool healthy_ = true;
  Status taken_over_;
  CommitStats stats_;
};

}  // namespace lockstep::server

#endif  // LOCKSTEP_SERVER_COORDINATOR_STORE_WRITER_H_
