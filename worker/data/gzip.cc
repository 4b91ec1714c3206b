#include "worker/data/gzip.h"

#include <zlib.h>

#include <algorithm>
#include <vector>

namespace lockstep {
namespace {

constexpr size_t kChunk = 1 << 20;

// Owns the state of zlib.
class Inflater {
 public:
  // 16 + 15: gzip framing with the largest window.
  Inflater() { ready_ = inflateInit2(&stream_, 16 + MAX_WBITS) == Z_OK; }
  ~Inflater() {
    if (ready_) inflateEnd(&stream_);
  }
  Inflater(const Inflater&) = delete;
  Inflater& operator=(const Inflater&) = delete;

  bool ready() const { return ready_; }
  z_stream* stream() { return &stream_; }

 private:
  z_stream stream_ = {};
  bool ready_ = false;
};

}  // namespace

bool IsGzip(std::string_view bytes) { return bytes.substr(0, 2) == "\x1f\x8b"; }

StatusOr<std::string> Gunzip(std::string_view bytes, std::string_view name,
                             uint64_t limit) {
  Inflater inflater;
  if (!inflater.ready()) {
    return ResourceExhausted("{}: no memory to decompress it", name);
  }
  z_stream* const stream = inflater.stream();
  std::string result;
  std::vector<char> chunk(kChunk);
  size_t used = 0;
  for (;;) {
    // avail_in has 32 bits: feed at most a chunk at a time.
    const size_t feed = std::min(kChunk, bytes.size() - used);
    stream->next_in =
        reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data() + used));
    stream->avail_in = static_cast<uInt>(feed);
    stream->next_out = reinterpret_cast<Bytef*>(chunk.data());
    stream->avail_out = static_cast<uInt>(chunk.size());
    const int code = inflate(stream, Z_NO_FLUSH);
    used += feed - stream->avail_in;
    const size_t produced = chunk.size() - stream->avail_out;
    if (produced > limit - result.size()) {
      return ResourceExhausted("{}: decompressed it has more than {} bytes",
                               name, limit);
    }
    result.append(chunk.data(), produced);
    if (code == Z_STREAM_END) {
      if (used == bytes.size()) return result;
      // The next member; inflate says so if it is none.
      inflateReset(stream);
    } else if (code == Z_BUF_ERROR ||
               (code == Z_OK && produced == 0 && used == bytes.size())) {
      return DataLoss("{}: the gzip data is cut off at byte {}", name, used);
    } else if (code != Z_OK) {
      return DataLoss("{}: damaged gzip data at byte {}: {}", name, used,
                      stream->msg == nullptr ? "bad stream" : stream->msg);
    }
  }
}

StatusOr<std::string> ReadMaybeGzip(FileSystem* fs, const std::string& path,
                                    uint64_t limit) {
  LOCKSTEP_ASSIGN_OR_RETURN(std::string bytes, fs->Read(path, limit));
  if (!IsGzip(bytes)) return bytes;
  return Gunzip(bytes, path, limit);
}

}  // namespace lockstep
