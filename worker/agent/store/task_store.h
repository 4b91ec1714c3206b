// The state that a daemon recovers after a restart: a directory per gang with
// one per rank.
//
//   DIR/tasks/JOB.gN/gang                 assignment, status and link nonces
//   DIR/tasks/JOB.gN/rank-R/task.record   by the shim (worker/task)
//                          exit.record    by the shim
//                          log, log.*     by the shim
//                          shim.err       errors that the shim cannot record
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

namespace lockstep {

// How the name of a directory begins that is about to be removed. No job's
// name and no job's uid begins with a dot.
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
};

struct StoredGang {
  Assignment assignment;
  GangStatus status;
  // By rank: what it proves itself with on the daemon's link.
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

  // Makes what is missing in `dir`, which must be there.
  Status Init();
  std::string GangDirectory(const GangKey& key) const;
  // Where the gang's packages are unpacked.
  std::string CodeDirectory(const GangKey& key) const;
  RankPaths PathsOf(const GangKey& key, int32_t rank) const;

  // Makes the directories of a rank; `work` belongs to the task's user.
  Status MakeRankDirectories(const GangKey& key, int32_t rank, uid_t uid,
                             gid_t gid);
  // Durable once it is OK, the names of its directories too.
  Status Save(const StoredGang& gang);
  // Renames `directory`, a gang's or one in it, out of the way, however much is
  // in it; where it is now. NotFound: there is none.
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
  // Directories of gangs whose names are on the disk.
  std::set<std::string> durable_;
};

// The daemon's start counter in DIR/incarnation: raised, and on disk, before
// it is used. DataLoss when the file is damaged: two daemons with one
// number must not be.
StatusOr<uint64_t> NextIncarnation(FileSystem* files, const std::string& dir);

// The newest state of a coordinator's store that was obeyed here, in DIR/obeyed
// and, for its version, DIR/obeyed-version; epoch 0: none was. A daemon from
// before histories left DIR/epoch: then the history is empty.
// DataLoss when DIR/obeyed, or DIR/epoch without it, is damaged.
StatusOr<StorePoint> LoadObeyed(FileSystem* files, const std::string& dir);
// Durable once it is OK.
Status SaveObeyed(FileSystem* files, const std::string& dir,
                  const StorePoint& point);
// The version alone, within a history and epoch that are saved: for each order,
// and so not synced. After a power loss an older one may be there, but so is
// nothing that ran.
Status NoteObeyedVersion(FileSystem* files, const std::string& dir,
                         const StorePoint& point);

}  // namespace lockstep

#endif  // LOCKSTEP_WORKER_AGENT_STORE_TASK_STORE_H_
