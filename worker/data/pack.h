// Makes shards of pictures.
#ifndef LOCKSTEP_WORKER_DATA_PACK_H_
#define LOCKSTEP_WORKER_DATA_PACK_H_

#include <cstdint>
#include <string>
#include <vector>

#include "common/base/file.h"
#include "common/base/status.h"
#include "worker/data/shard_writer.h"

namespace lockstep::worker::data {

struct PackResult {
  std::vector<WrittenShard> shards;
  uint64_t samples = 0;
  // JPEG folders: the name of class i.
  std::vector<std::string> classes;
  // Why each damaged picture was left out.
  std::vector<std::string> skipped;
};

// The images of an IDX pair (plain or gzip), raw, in the order of the files.
StatusOr<PackResult> PackIdx(FileSystem* fs, const std::string& images_path,
                             const std::string& labels_path,
                             const ShardOptions& options);

struct JpegFolderOptions {
  // Both 0: a JPEG is stored as it is. Else it is stretched to this size and
  // encoded again.
  uint32_t height = 0;
  uint32_t width = 0;
  int quality = 95;  // For pictures that are encoded again, 1 to 100.
  // Stores decoded RGB bytes: much larger, and no decoding while training.
  bool raw = false;
  uint64_t seed = 0;  // For the order in which pictures are stored.
  // Leaves damaged pictures out instead of stopping at the first.
  bool skip_damaged = false;
};

// The *.jpg and *.jpeg of each directory in `directory`, which is a class; the
// classes' labels count from 0 in the order of their names. Pictures are
// stored in an order that depends on the seed and the names only, so that
// each shard has all classes. Also writes NAME-labels.txt, a line a class.
// Hidden files and those of other kinds are passed over.
StatusOr<PackResult> PackJpegFolder(FileSystem* fs,
                                    const std::string& directory,
                                    const JpegFolderOptions& folder,
                                    const ShardOptions& options);

}  // namespace lockstep::worker::data

#endif  // LOCKSTEP_WORKER_DATA_PACK_H_
