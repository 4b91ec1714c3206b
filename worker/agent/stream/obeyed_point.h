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

namespace lockstep {

class ObeyedPoint {
 public:
  // `files` is borrowed; `dir` is the daemon's state directory.
  ObeyedPoint(FileSystem* files, std::string dir)
      : files_(files), dir_(std::move(dir)) {}

  // Reads what an earlier daemon has obeyed. DataLoss: it is damaged.
  Status Load();
  const StorePoint& point() const { return point_; }

  // Obeys a coordinator. FailedPrecondition, with what to do: its store is
  // older than what was obeyed here. OK: whether it is of another epoch than
  // the one that was obeyed last.
  StatusOr<bool> Obey(const WelcomeInfo& welcome);
  // FailedPrecondition: an order of `epoch` is not of the coordinator that is
  // obeyed.
  Status CheckOrder(uint64_t epoch) const;
  // An order was decided with this version of the store.
  void NoteVersion(int64_t version);

 private:
  void Save();

  FileSystem* const files_;
  const std::string dir_;
  StorePoint point_;
  StorePoint saved_;  // What of it is on disk.
};

}  // namespace lockstep

#endif  // LOCKSTEP_WORKER_AGENT_STREAM_OBEYED_POINT_H_
