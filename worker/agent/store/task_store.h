// The state that a daemon recovers after a restart: a directory per gang with
// one per rank.
//
//   DIR/tasks/JOB.gN/gang                 assignment, status and link nonces
//   DIR/tasks/JOB.gN/rank-R/task.record   by the shim (worker/task)
//                          exit.record    by the shim
//                          log, log.*     by the shim
//                          shim.err       errors that the shim cannot record
//                          link/file      of a program: the link's path and
//                                         nonce; 0400, the task's user's
//                          processes      descendants of the shim (orphans.h);
//                                         useless after a reboot
//                          lock           flock(2)ed while a shim runs or
//                          starts work/          the rank's page, and
//                          torchelastic's
//                                         error file
//   DIR/tasks/.gone-*                     to be removed
//
// Working directories, which outlive a gang, are in work_store.h.
//
// Thread-compatible.
#ifndef LOCKSTEP_WORKER_AGENT_STORE_TASK_STORE_H_
#define LOCKSTEP_WORKER_AGENT_STORE_TASK_STORE_H_

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "common/base/file.h"
#include "common/base/status.h"
#include "common/model/assignment.h"
#include "common/model/node.h"
#include "common/model/store_point.h"
#include "worker/agent/core/gang_key.h"

namespace lockstep::worker::agent {

// Prefix of directories that are about to be removed. Neither job names nor
// uids begin with a dot.
inline constexpr char kAsidePrefix[] = ".gone-";

struct RankPaths {
  std::string directory;
  std::string work;
  std::string page;
  std::string log;
  std::string task_record;
  std::string exit_record;
  std::string shim_errors;
  std::string error_file;
  std::string lock;
  std::string processes;
  // Its directory belongs to the daemon.
  std::string link_directory;
  std::string link_file;
};

struct StoredGang {
  Assignment assignment;
  GangStatus status;
  // Nonces by rank, for authentication on the daemon's link.
  std::map<int32_t, std::string> link_nonces;

  bool operator==(const StoredGang&) const = default;
};

std::string EncodeStoredGang(const StoredGang& gang);
// DataLoss describes what is wrong with the bytes.
StatusOr<StoredGang> DecodeStoredGang(std::string_view bytes);

class TaskStore {
 public:
  // `files` is borrowed; `dir` is the daemon's state directory.
  TaskStore(FileSystem* files, const std::string& dir);

  // Creates missing directories in `dir`, which must exist.
  Status Init();
  std::string GangDirectory(const GangKey& key) const;
  // Returns the folder for the gang's unpacked packages.
  std::string CodeDirectory(const GangKey& key) const;
  RankPaths PathsOf(const GangKey& key, int32_t rank) const;

  // Creates the directories of a rank; `work` belongs to the task's user.
  Status MakeRankDirectories(const GangKey& key, int32_t rank, uid_t uid,
                             gid_t gid);
  // Writes the rank's link file, readable by the task's user alone. Not
  // durable: its reader does not outlive the host.
  Status WriteLinkFile(const GangKey& key, int32_t rank,
                       const std::string& text, uid_t uid, gid_t gid);
  // When it returns OK, the record and the names of its directories are
  // durable.
  Status Save(const StoredGang& gang);
  // Renames `directory`, a gang's or one in it, for a later removal, and
  // returns its new path. NotFound if it does not exist.
  StatusOr<std::string> SetAside(const std::string& directory);

  struct Found {
    std::vector<StoredGang> gangs;
    // Directories of gangs whose file is missing or damaged.
    std::vector<std::string> damaged;
    // Directories that were set aside.
    std::vector<std::string> aside;
  };
  StatusOr<Found> LoadAll();

 private:
  FileSystem* const files_;
  const std::string dir_;
  const std::string root_;
  // Directories of gangs whose names are durable.
  std::set<std::string> durable_;
};

// Returns the daemon's start counter in DIR/incarnation, incremented and
// durable. DataLoss if the file is damaged: two daemons must not have the same
// number.
StatusOr<uint64_t> NextIncarnation(FileSystem* files, const std::string& dir);

// The port of probes that the last daemon had; 0: unknown. Nothing is lost with
// it: errors are logged.
int LoadProbePort(FileSystem* files, const std::string& dir);
void SaveProbePort(FileSystem* files, const std::string& dir, int port);

// Returns the newest store state of a coordinator that was followed here, from
// DIR/obeyed and, for its version, DIR/obeyed-version; epoch 0 if there is
// none. Older daemons left DIR/epoch: then the history is empty. DataLoss if
// DIR/obeyed, or DIR/epoch without it, is damaged.
StatusOr<StorePoint> LoadObeyed(FileSystem* files, const std::string& dir);
// Durable once it returns OK.
Status SaveObeyed(FileSystem* files, const std::string& dir,
                  const StorePoint& point);
// Writes only the version, within a saved history and epoch. Called for each
// order, so it does not sync. After a power loss the version may be older, but
// then no rank runs either.
Status NoteObeyedVersion(FileSystem* files, const std::string& dir,
                         const StorePoint& point);

}  // namespace lockstep::worker::agent

#endif  // LOCKSTEP_WORKER_AGENT_STORE_TASK_STORE_H_
