// Finding and reading complete checkpoints.
//
// One rank, the chief, calls FindNewest and sends the path to the others, which
// Open it. Damaged data is never returned: data that does not fit a manifest
// and its CRCs is an error.
#ifndef LOCKSTEP_WORKER_CHECKPOINT_READER_H_
#define LOCKSTEP_WORKER_CHECKPOINT_READER_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "common/base/file.h"
#include "common/base/status.h"
#include "worker/checkpoint/layout.h"
#include "worker/checkpoint/manifest.h"
#include "worker/checkpoint/shard.h"

namespace lockstep::worker::checkpoint {

// A complete checkpoint. Keeps only the manifest in memory.
class Checkpoint {
 public:
  // Checks MANIFEST, that it belongs to this directory, and the size of each
  // shard. DataLoss or NotFound where something is damaged or missing, with
  // the file's name. `fs` must outlive the checkpoint.
  static StatusOr<Checkpoint> Open(FileSystem* fs, const std::string& path);

  const std::string& path() const { return path_; }
  const Manifest& manifest() const { return manifest_; }

  // Returns the whole shard of rank `rank` of the world that wrote it, every
  // CRC checked. With replicas, shard 0 holds the tensors.
  StatusOr<Shard> ReadShard(uint32_t rank) const;

  // Reads everything and checks every CRC, 4 MiB of memory at a time.
  Status Verify() const;

 private:
  Checkpoint(FileSystem* fs, std::string path, Manifest manifest)
      : fs_(fs), path_(std::move(path)), manifest_(std::move(manifest)) {}
  std::string ShardPath(uint32_t rank) const;

  FileSystem* fs_;
  std::string path_;
  Manifest manifest_;
};

// Whether a job may go on from `key`; e.g.
//   [&](const CheckpointKey& key) { return IsOnLineage(lineage, key); }
using LineagePredicate = std::function<bool(const CheckpointKey& key)>;

// Something found damaged: its name, why, and the name it is kept under
// (empty when it was not renamed).
struct Damaged {
  std::string name;
  std::string reason;
  std::string kept_as;
};

struct FindResult {
  // Verified in full. No value: there is none to go on from.
  std::optional<Checkpoint> newest;
  // For the operator, newest first.
  std::vector<Damaged> damaged;
};

// A whole checkpoint, or a damaged one, or (with neither) one of another job.
struct Verified {
  std::optional<Checkpoint> checkpoint;
  std::optional<Damaged> damage;
};

// Reads every byte of checkpoint `key`. Returns an error that is not about the
// bytes (no permission, too many open files, EIO, ESTALE, the directory moved
// away meanwhile): taking it for damage would lose work.
StatusOr<Verified> OpenVerified(FileSystem* fs, const std::string& root,
                                const CheckpointKey& key,
                                const std::string& job);

// Finds the newest checkpoint of `job` in `root` that `on_lineage` accepts and
// whose every byte is right. Damaged ones before it are listed, and renamed to
// ".bad-NAME" once an intact one is found: where there is none, the operator
// has to see them. A missing root holds no checkpoint. Errors as for
// OpenVerified.
StatusOr<FindResult> FindNewest(FileSystem* fs, const std::string& root,
                                const std::string& job,
                                const LineagePredicate& on_lineage);

// Sets checkpoint `name` aside. For damage that shows only while loading.
Damaged SetAside(FileSystem* fs, const std::string& root,
                 const std::string& name, const Status& reason);

}  // namespace lockstep::worker::checkpoint

#endif  // LOCKSTEP_WORKER_CHECKPOINT_READER_H_
