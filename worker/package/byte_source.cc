#include "worker/package/byte_source.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <utility>
#include <vector>

namespace lockstep {
namespace {

class Memory final : public ByteSource {
 public:
  explicit Memory(std::string_view bytes) : bytes_(bytes) {}

  StatusOr<size_t> Read(char* buffer, size_t size) override {
    const size_t count = std::min(size, bytes_.size());
    if (count > 0) memcpy(buffer, bytes_.data(), count);
    bytes_.remove_prefix(count);
    return count;
  }

 private:
  std::string_view bytes_;
};

class File final : public ByteSource {
 public:
  File(Fd fd, std::string path) : fd_(std::move(fd)), path_(std::move(path)) {}

  StatusOr<size_t> Read(char* buffer, size_t size) override {
    for (;;) {
      const ssize_t count = ::read(fd_.get(), buffer, size);
      if (count >= 0) return static_cast<size_t>(count);
      if (errno != EINTR) return ErrnoStatus(errno, "reading " + path_);
    }
  }

 private:
  const Fd fd_;
  const std::string path_;
};

class Gunzip final : public ByteSource {
 public:
  explicit Gunzip(std::unique_ptr<ByteSource> compressed)
      : compressed_(std::move(compressed)), input_(size_t{128} << 10) {
    // 16 + 15: gzip framing with the largest window.
    ready_ = inflateInit2(&stream_, 16 + MAX_WBITS) == Z_OK;
  }
  ~Gunzip() override {
    if (ready_) inflateEnd(&stream_);
  }
  bool ready() const { return ready_; }

  StatusOr<size_t> Read(char* buffer, size_t size) override {
    size = std::min<size_t>(size, 1 << 20);  // avail_out has 32 bits.
    stream_.next_out = reinterpret_cast<Bytef*>(buffer);
    stream_.avail_out = static_cast<uInt>(size);
    while (stream_.avail_out == size) {
      if (stream_.avail_in == 0) {
        LOCKSTEP_RETURN_IF_ERROR(Fill());
        if (stream_.avail_in == 0) {
          if (between_) return size_t{0};
          return DataLoss("its gzip data is cut off at byte {}", used_);
        }
      }
      if (between_ && begun_) inflateReset(&stream_);
      between_ = false;
      begun_ = true;
      const int code = inflate(&stream_, Z_NO_FLUSH);
      if (code == Z_STREAM_END) {
        between_ = true;
      } else if (code != Z_OK && code != Z_BUF_ERROR) {
        return DataLoss("it is damaged gzip data near byte {}: {}",
                        used_ - stream_.avail_in,
                        stream_.msg == nullptr ? "bad stream" : stream_.msg);
      }
    }
    return size - stream_.avail_out;
  }

 private:
  Status Fill() {
    LOCKSTEP_ASSIGN_OR_RETURN(const size_t count,
                              compressed_->Read(input_.data(), input_.size()));
    used_ += count;
    stream_.next_in = reinterpret_cast<Bytef*>(input_.data());
    stream_.avail_in = static_cast<uInt>(count);
    return OkStatus();
  }

  const std::unique_ptr<ByteSource> compressed_;
  std::vector<char> input_;
  z_stream stream_ = {};
  bool ready_ = false;
  bool begun_ = false;
  bool between_ = false;  // Members: here it may end.
  uint64_t used_ = 0;
};

}  // namespace

std::unique_ptr<ByteSource> MakeByteSource(std::string_view bytes) {
  return std::make_unique<Memory>(bytes);
}

StatusOr<std::unique_ptr<ByteSource>> OpenByteSource(const std::string& path) {
  Fd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd) return ErrnoStatus(errno, "opening " + path);
  return std::unique_ptr<ByteSource>(
      std::make_unique<File>(std::move(fd), path));
}

StatusOr<std::unique_ptr<ByteSource>> MakeGunzip(
    std::unique_ptr<ByteSource> compressed) {
  auto gunzip = std::make_unique<Gunzip>(std::move(compressed));
  if (!gunzip->ready()) {
    return ResourceExhausted("there is no memory to decompress it");
  }
  return std::unique_ptr<ByteSource>(std::move(gunzip));
}

}  // namespace lockstep
