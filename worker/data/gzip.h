// Files that may be compressed with gzip.
#ifndef LOCKSTEP_WORKER_DATA_GZIP_H_
#define LOCKSTEP_WORKER_DATA_GZIP_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "common/base/file.h"
#include "common/base/status.h"

namespace lockstep::worker::data {

// Begins as every gzip file does (RFC 1952).
bool IsGzip(std::string_view bytes);

// All members of a gzip file one after another. `name` is for errors.
// DataLoss, with the offset in the compressed bytes, where they are damaged or
// end early; ResourceExhausted when more than `limit` bytes would come out.
StatusOr<std::string> Gunzip(std::string_view bytes, std::string_view name,
                             uint64_t limit);

// The contents of `path`, decompressed where IsGzip, at most `limit` bytes.
StatusOr<std::string> ReadMaybeGzip(FileSystem* fs, const std::string& path,
                                    uint64_t limit);

}  // namespace lockstep::worker::data

#endif  // LOCKSTEP_WORKER_DATA_GZIP_H_
