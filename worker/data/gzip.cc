#include "worker/data/gzip.h"

#include <algorithm>
#include <vector>

#include "common/base/gzip_decoder.h"

namespace lockstep::worker::data {
namespace {

constexpr size_t kChunk = 1 << 20;

}  // namespace

bool IsGzip(std::string_view bytes) { return bytes.substr(0, 2) == "\x1f\x8b"; }

StatusOr<std::string> Gunzip(std::string_view bytes, std::string_view name,
                             uint64_t limit) {
  GzipDecoder decoder;
  if (!decoder.ready()) {
    return ResourceExhausted("{}: not enough memory to decompress it", name);
  }
  std::string result;
  std::vector<char> chunk(kChunk);
  for (;;) {
    if (decoder.needs_input()) {
      const size_t feed = std::min(kChunk, bytes.size());
      decoder.Give(bytes.substr(0, feed));
      bytes.remove_prefix(feed);
    }
    const auto count = decoder.Read(chunk.data(), chunk.size());
    if (!count.ok()) return Annotate(count.status(), name);
    if (*count > limit - result.size()) {
      return ResourceExhausted("{}: the decompressed data exceeds {} bytes",
                               name, limit);
    }
    result.append(chunk.data(), *count);
    if (*count > 0 || !bytes.empty()) continue;
    LOCKSTEP_RETURN_IF_ERROR(Annotate(decoder.CheckEnd(), name));
    return result;
  }
}

StatusOr<std::string> ReadMaybeGzip(FileSystem* fs, const std::string& path,
                                    uint64_t limit) {
  LOCKSTEP_ASSIGN_OR_RETURN(std::string bytes, fs->Read(path, limit));
  if (!IsGzip(bytes)) return bytes;
  return Gunzip(bytes, path, limit);
}

}  // namespace lockstep::worker::data
