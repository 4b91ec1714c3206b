#include "worker/package/package_test_util.h"

#include <gtest/gtest.h>
#include <stdlib.h>
#include <zlib.h>

#include <algorithm>
#include <thread>

#include "common/base/file.h"
#include "common/base/sha256.h"

namespace lockstep::worker::package {

TempDir::TempDir() {
  char name[] = "/tmp/lockstep-package-XXXXXX";
  if (mkdtemp(name) == nullptr) abort();
  path_ = name;
}

TempDir::~TempDir() { EXPECT_TRUE(RealFileSystem()->RemoveAll(path_).ok()); }

std::string TempDir::operator/(std::string_view name) const {
  return JoinPath(path_, name);
}

TarWriter& TarWriter::File(std::string_view name, std::string_view contents,
                           uint32_t mode) {
  return Add('0', name, "", contents, mode);
}

TarWriter& TarWriter::Add(char type, std::string_view name,
                          std::string_view link, std::string_view contents,
                          uint32_t mode) {
  if (name.size() > 100) {
    Add('L', "././@LongLink", "", std::string(name) + '\0');
  }
  std::string block(512, '\0');
  const auto put = [&](size_t at, std::string_view text) {
    std::copy(text.begin(), text.end(),
              block.begin() + static_cast<ptrdiff_t>(at));
  };
  put(0, name.substr(0, 100));
  put(100, fmt::format("{:07o}", mode));
  put(108, "0000000");
  put(116, "0000000");
  put(124, fmt::format("{:011o}", contents.size()));
  put(136, "00000000000");
  put(148, "        ");
  block[156] = type;
  put(157, link.substr(0, 100));
  put(257, std::string_view("ustar\00000", 8));
  int sum = 0;
  for (const char c : block) sum += static_cast<unsigned char>(c);
  put(148, fmt::format("{:06o}", sum));
  block[154] = '\0';
  bytes_ += block;
  bytes_ += contents;
  bytes_.append((512 - contents.size() % 512) % 512, '\0');
  return *this;
}

TarWriter& TarWriter::Pax(std::string_view key, std::string_view value) {
  const size_t rest = key.size() + value.size() + 3;
  size_t length = rest;
  while (length != rest + std::to_string(length).size()) {
    length = rest + std::to_string(length).size();
  }
  return Add('x', "pax", "", fmt::format("{} {}={}\n", length, key, value));
}

std::string TarWriter::Gzipped() const { return Gzip(Done()); }

std::string Gzip(std::string_view bytes) {
  z_stream stream = {};
  EXPECT_EQ(deflateInit2(&stream, Z_BEST_SPEED, Z_DEFLATED, 16 + MAX_WBITS, 8,
                         Z_DEFAULT_STRATEGY),
            Z_OK);
  std::string out(deflateBound(&stream, bytes.size()), '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data()));
  stream.avail_in = static_cast<uInt>(bytes.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  EXPECT_EQ(deflate(&stream, Z_FINISH), Z_STREAM_END);
  out.resize(stream.total_out);
  deflateEnd(&stream);
  return out;
}

Package PackageOf(std::string_view bytes, const std::string& file_name,
                  PackageFormat format) {
  Package package;
  package.digest = "sha256:";
  for (const char c : Sha256(bytes)) {
    package.digest += fmt::format("{:02x}", static_cast<unsigned char>(c));
  }
  package.bytes = static_cast<int64_t>(bytes.size());
  package.format = format;
  package.file_name = file_name;
  return package;
}

Package FakePackageSource::Put(const std::string& bytes,
                               const std::string& file_name,
                               PackageFormat format) {
  Package package = PackageOf(bytes, file_name, format);
  MutexLock lock(&mu_);
  packages_[package.digest] = bytes;
  return package;
}

void FakePackageSource::Spoil(const Package& package,
                              const std::string& bytes) {
  MutexLock lock(&mu_);
  packages_[package.digest] = bytes;
}

std::vector<int64_t> FakePackageSource::offsets() {
  MutexLock lock(&mu_);
  return offsets_;
}

Status FakePackageSource::Fetch(const std::string& digest, int64_t offset,
                                Duration idle, const Take& take,
                                Cancellation* cancel) {
  ++fetches;
  std::string bytes;
  {
    MutexLock lock(&mu_);
    offsets_.push_back(offset);
    const auto it = packages_.find(digest);
    if (it == packages_.end())
      return NotFound("there is no package {}", digest);
    bytes = it->second;
  }
  if (offset > static_cast<int64_t>(bytes.size())) {
    return OutOfRange("it has no byte {}", offset);
  }
  bytes.erase(0, static_cast<size_t>(offset));
  constexpr int64_t kPiece = 1000;
  for (int64_t sent = 0; sent < static_cast<int64_t>(bytes.size());) {
    if (break_after >= 0 && sent >= break_after) {
      return Unavailable("the connection broke");
    }
    if (hang_after >= 0 && sent >= hang_after) {
      ++hanging;
      const bool slept = cancel->SleepFor(idle);
      --hanging;
      if (!slept) return cancel->Check();
      return DeadlineExceeded("no byte came for {}", FormatDuration(idle));
    }
    const auto size = static_cast<size_t>(
        std::min<int64_t>(kPiece, static_cast<int64_t>(bytes.size()) - sent));
    LOCKSTEP_RETURN_IF_ERROR(
        take(std::string_view(bytes).substr(static_cast<size_t>(sent), size)));
    sent += static_cast<int64_t>(size);
  }
  return OkStatus();
}

bool Eventually(const std::function<bool()>& condition) {
  const MonoTime deadline = MonotonicNow() + std::chrono::seconds(20);
  while (!condition()) {
    if (MonotonicNow() > deadline) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}

}  // namespace lockstep::worker::package
