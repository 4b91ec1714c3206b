// Ships the logs of this node's ranks to the coordinator. Each log starts at
// the byte that the coordinator has acknowledged. The number of bytes in flight
// is bounded over all logs, and logs take turns. The caller decides whether to
// delete a log before its end is acknowledged.
//
// Offsets on the wire count all bytes ever sent of a log. They equal the file
// offsets until a gap (bytes that the shim dropped before they were sent) adds
// a line; from then on they differ by the length in the gap mark, which is
// stored next to the log for the next daemon.
//
// Thread-compatible: belongs to the event loop. Reads small parts of files.
#ifndef LOCKSTEP_WORKER_AGENT_STREAM_LOG_SHIPPER_H_
#define LOCKSTEP_WORKER_AGENT_STREAM_LOG_SHIPPER_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "common/base/clock.h"
#include "common/base/file.h"
#include "common/wire/worker_wire.h"
#include "worker/agent/core/gang_key.h"

namespace lockstep::worker::agent {

struct LogShipperOptions {
  size_t max_in_flight = 1 << 20;
  size_t chunk = 128 << 10;
  // Bytes without an acknowledgement after this time are sent again.
  Duration ack_timeout = std::chrono::seconds(15);
};

class LogShipper {
 public:
  // `files` is borrowed.
  LogShipper(LogShipperOptions options, FileSystem* files)
      : options_(options), files_(files) {}

  // A log that is there still grows again: its gang came back before the
  // coordinator had stored the end. The coordinator may then ask for all of it
  // once more.
  void Add(const RankRef& ref, const std::string& job_uid,
           const std::string& log_path);
  // The log is complete.
  void SetEnded(const RankRef& ref);
  // The rank restarts, so the log grows again.
  void SetGoesOn(const RankRef& ref);
  void Remove(const RankRef& ref);

  // A new stream began: bytes in flight on the old one may be lost.
  void OnReconnect();
  // The coordinator can now answer pieces that it left unanswered.
  void SendAgain(const RankRef& ref);
  void OnAck(const LogAckInfo& ack, MonoTime now);

  // Returns the pieces to send now; empty if nothing is new or enough is in
  // flight.
  std::vector<LogPiece> Take(MonoTime now);
  // Returns whether the coordinator has stored the log and its end.
  bool Done(const RankRef& ref) const;
  // Bytes sent so far by this daemon.
  uint64_t BytesSent(const RankRef& ref) const;
  // Bytes in gaps of the whole log.
  uint64_t BytesDropped(const RankRef& ref) const;
  // Those gaps.
  uint64_t Gaps(const RankRef& ref) const;

 private:
  // Byte `sent` on the wire corresponds to byte `file` of the files.
  struct Mark {
    uint64_t sent = 0;
    uint64_t file = 0;
    std::string gap_text;  // Of `sent` - its size, before it.
  };
  struct Log {
    std::string job_uid;
    std::string path;
    std::vector<Mark> marks;
    uint64_t acked = 0;
    uint64_t sent = 0;
    bool ended = false;
    bool end_sent = false;
    bool end_acked = false;
    uint64_t total_sent = 0;
    // Time of the newest ack, or of the first send after it.
    MonoTime progress;

    // Returns whether an acknowledgement is outstanding, of bytes or of the
    // end.
    bool Waits() const { return sent > acked || (end_sent && !end_acked); }
  };

  std::optional<LogPiece> TakePiece(const RankRef& ref, Log* log, size_t most);
  void LoadMarks(Log* log);
  void AddMark(Log* log, uint64_t file, std::string gap_text);

  const LogShipperOptions options_;
  FileSystem* const files_;
  std::map<RankRef, Log> logs_;
  RankRef next_;  // Round-robin.
};

}  // namespace lockstep::worker::agent

#endif  // LOCKSTEP_WORKER_AGENT_STREAM_LOG_SHIPPER_H_
