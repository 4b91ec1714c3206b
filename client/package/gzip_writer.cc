#include "client/package/gzip_writer.h"

#include <zlib.h>

#include <algorithm>
#include <utility>

namespace lockstep::cli {
namespace {

constexpr int kFast = 1;
constexpr int kStored = 0;
// The largest window, with gzip framing.
constexpr int kGzip = 16 + MAX_WBITS;
constexpr size_t kBuffer = size_t{256} << 10;

Bytef* BytesOf(const char* text) {
  return reinterpret_cast<Bytef*>(const_cast<char*>(text));
}

// True if it shrinks by a sixteenth or more.
bool Shrinks(std::string_view piece) {
  const std::string_view sample =
      piece.substr(0, std::min(piece.size(), GzipWriter::kSample));
  std::string packed(compressBound(sample.size()), '\0');
  uLongf size = packed.size();
  const int code = compress2(BytesOf(packed.data()), &size,
                             BytesOf(sample.data()), sample.size(), kFast);
  return code != Z_OK || size <= sample.size() - sample.size() / 16;
}

}  // namespace

struct GzipWriter::Stream {
  z_stream z = {};
  bool ready = false;
  int level = kFast;
  std::string buffer = std::string(kBuffer, '\0');

  Stream() {
    // 8 is zlib's default memory level.
    ready = deflateInit2(&z, kFast, Z_DEFLATED, kGzip, 8, Z_DEFAULT_STRATEGY) ==
            Z_OK;
  }
  ~Stream() {
    if (ready) deflateEnd(&z);
  }
};

GzipWriter::GzipWriter(Output output)
    : output_(std::move(output)), stream_(std::make_unique<Stream>()) {
  if (!stream_->ready) status_ = Internal("zlib is out of memory");
  piece_.reserve(kPiece);
}

GzipWriter::~GzipWriter() = default;

Status GzipWriter::Write(std::string_view bytes) {
  while (status_.ok() && !bytes.empty()) {
    const size_t count = std::min(bytes.size(), kPiece - piece_.size());
    piece_.append(bytes.substr(0, count));
    bytes.remove_prefix(count);
    if (piece_.size() == kPiece) status_ = Flush(false);
  }
  return status_;
}

Status GzipWriter::Close() {
  if (status_.ok()) status_ = Flush(true);
  return status_;
}

Status GzipWriter::Flush(bool last) {
  z_stream& z = stream_->z;
  const auto write = [&](auto step) -> Status {
    do {
      z.next_out = BytesOf(stream_->buffer.data());
      z.avail_out = static_cast<uInt>(stream_->buffer.size());
      const int code = step();
      if (code == Z_STREAM_ERROR) return Internal("zlib cannot compress");
      const size_t size = stream_->buffer.size() - z.avail_out;
      if (size > 0) {
        LOCKSTEP_RETURN_IF_ERROR(
            output_(std::string_view(stream_->buffer).substr(0, size)));
      }
    } while (z.avail_out == 0);
    return OkStatus();
  };
  const int level = piece_.empty() || Shrinks(piece_) ? kFast : kStored;
  if (level != stream_->level) {
    stream_->level = level;
    // Ends the block that the other level began.
    LOCKSTEP_RETURN_IF_ERROR(
        write([&] { return deflateParams(&z, level, Z_DEFAULT_STRATEGY); }));
  }
  z.next_in = BytesOf(piece_.data());
  z.avail_in = static_cast<uInt>(piece_.size());
  LOCKSTEP_RETURN_IF_ERROR(
      write([&] { return deflate(&z, last ? Z_FINISH : Z_NO_FLUSH); }));
  piece_.clear();
  return OkStatus();
}

}  // namespace lockstep::cli
