// The coordinator that this node follows: the newest store state that it has
// followed. A coordinator with an older store is refused.
//
// Belongs to the event loop's thread. Writes to the daemon's directory before
// it accepts. A failed write is logged and retried at the next Welcome: a full
// disk must not separate the node from its coordinator.
#ifndef LOCKSTEP_WORKER_AGENT_STREAM_OBEYED_POINT_H_
#define LOCKSTEP_WORKER_AGENT_STREAM_OBEYED_POINT_H_

#include <cstdint>
#include <string>
#include <utility>

#include "common/base/file.h"
#include "common/base/status.h"
#include "common/model/store_point.h"
#include "common/wire/worker_wire.h"

namespace lockstep::worker::agent {

class ObeyedPoint {
 public:
  // `files` is borrowed; `dir` is the daemon's state directory.
  ObeyedPoint(FileSystem* files, std::string dir)
      : files_(files), dir_(std::move(dir)) {}

  // Reads the state that an earlier daemon followed. DataLoss if it is damaged.
  Status Load();
  const StorePoint& point() const { return point_; }

  // Follows a coordinator. FailedPrecondition, with a remedy, if its store is
  // older than the state followed here. Otherwise returns whether its epoch
  // differs from the last one.
  StatusOr<bool> Obey(const WelcomeInfo& welcome);
  // FailedPrecondition if an order of `epoch` does not come from the followed
  // coordinator.
  Status CheckOrder(uint64_t epoch) const;
  // Notes the store version of an order.
  void NoteVersion(int64_t version);

 private:
  void Save();

  FileSystem* const files_;
  const std::string dir_;
  StorePoint point_;
  StorePoint saved_;  // The part of it that is on disk.
};

}  // namespace lockstep::worker::agent

#endif  // LOCKSTEP_WORKER_AGENT_STREAM_OBEYED_POINT_H_
