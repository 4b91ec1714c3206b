#include "worker/package/byte_source.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "common/base/gzip_decoder.h"

namespace lockstep::worker::package {
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
      : compressed_(std::move(compressed)), input_(size_t{128} << 10) {}
  bool ready() const { return decoder_.ready(); }

  StatusOr<size_t> Read(char* buffer, size_t size) override {
    for (;;) {
      LOCKSTEP_ASSIGN_OR_RETURN(const size_t count,
                                decoder_.Read(buffer, size));
      if (count > 0) return count;
      LOCKSTEP_ASSIGN_OR_RETURN(
          const size_t more, compressed_->Read(input_.data(), input_.size()));
      if (more == 0) {
        LOCKSTEP_RETURN_IF_ERROR(decoder_.CheckEnd());
        return size_t{0};
      }
      decoder_.Give({input_.data(), more});
    }
  }

 private:
  const std::unique_ptr<ByteSource> compressed_;
  std::vector<char> input_;
  GzipDecoder decoder_;
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
    return ResourceExhausted("not enough memory to decompress it");
  }
  return std::unique_ptr<ByteSource>(std::move(gunzip));
}

}  // namespace lockstep::worker::package
