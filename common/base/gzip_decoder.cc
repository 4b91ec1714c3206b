#include "common/base/gzip_decoder.h"

#include <algorithm>

namespace lockstep {

GzipDecoder::GzipDecoder() {
  // 16 + 15: gzip framing with the largest window.
  ready_ = inflateInit2(&stream_, 16 + MAX_WBITS) == Z_OK;
}

GzipDecoder::~GzipDecoder() {
  if (ready_) inflateEnd(&stream_);
}

void GzipDecoder::Give(std::string_view compressed) {
  stream_.next_in =
      reinterpret_cast<Bytef*>(const_cast<char*>(compressed.data()));
  stream_.avail_in = static_cast<uInt>(compressed.size());
  given_ += compressed.size();
}

StatusOr<size_t> GzipDecoder::Read(char* buffer, size_t size) {
  size = std::min<size_t>(size, 1 << 30);  // avail_out has 32 bits.
  stream_.next_out = reinterpret_cast<Bytef*>(buffer);
  stream_.avail_out = static_cast<uInt>(size);
  while (stream_.avail_out == size && stream_.avail_in > 0) {
    if (between_) inflateReset(&stream_);
    between_ = false;
    const int code = inflate(&stream_, Z_NO_FLUSH);
    if (code == Z_STREAM_END) {
      between_ = true;
    } else if (code != Z_OK && code != Z_BUF_ERROR) {
      return DataLoss("damaged gzip data at byte {}: {}",
                      given_ - stream_.avail_in,
                      stream_.msg == nullptr ? "bad stream" : stream_.msg);
    }
  }
  return size - stream_.avail_out;
}

Status GzipDecoder::CheckEnd() const {
  if (between_ && stream_.avail_in == 0) return OkStatus();
  return DataLoss("the gzip data is cut off at byte {}",
                  given_ - stream_.avail_in);
}

}  // namespace lockstep
