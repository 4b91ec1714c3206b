// Space on the disk of the coordinator's directory that is held for when there
// is no other: a file of 16 MiB. Once the disk is nearly full it is given up,
// so that what goes on can be committed, and jobs can be cancelled and deleted;
// what takes more is refused until there is room for the file again. On a disk
// where there never was room for it, what takes more is refused from
// `low_bytes` on, until twice as much is left.
#ifndef LOCKSTEP_SERVER_STORE_BALLAST_H_
#define LOCKSTEP_SERVER_STORE_BALLAST_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>

#include "common/base/status.h"

namespace lockstep::server {

// Bytes left for others than root where `dir` is.
StatusOr<uint64_t> AvailableBytes(const std::string& dir);

struct BallastOptions {
  // Where the disk is, and the file: it must be there.
  std::string dir;
  uint64_t bytes = 16 << 20;
  // With less than this left beside the file, it is given up; with twice as
  // much beside it, it is made again.
  uint64_t low_bytes = 4 << 20;
  std::function<StatusOr<uint64_t>(const std::string&)> available =
      AvailableBytes;
};

class Ballast {
 public:
  static constexpr char kFile[] = "ballast";

  // One coordinator has the directory. Nothing is done before Look.
  explicit Ballast(BallastOptions options);

  // Takes or gives up the space, by what is left: before anything else is
  // written, then every second or so. One thread. What goes wrong is logged.
  void Look();

  // From any thread. ResourceExhausted (reason DISK_FULL) names the directory:
  // the disk is full, and what takes more is to be refused.
  Status CheckSpace() const;
  // Why the coordinator did not start: `status`, or, where the disk has no room
  // for what a start writes, how much is to be freed, and what can go.
  Status ExplainStart(const Status& status) const;
  // What is held; 0: it was given up, or cannot be had.
  uint64_t held_bytes() const { return held_; }

 private:
  void Take(uint64_t available);
  void GiveUp(uint64_t available);

  const BallastOptions options_;
  const std::string path_;
  std::atomic<uint64_t> held_ = 0;
  std::atomic<bool> full_ = false;
  // The file was given up by this process.
  bool gave_up_ = false;
  // That nothing can be held was logged: it is said once.
  bool told_ = false;
};

}  // namespace lockstep::server

#endif  // LOCKSTEP_SERVER_STORE_BALLAST_H_
