#include "worker/data/tfrecord.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "common/base/crc32c.h"

namespace lockstep::worker::data {
namespace {

constexpr uint64_t kFrameBytes = kTfRecordHeaderBytes + kTfRecordFooterBytes;
constexpr size_t kWriteBuffer = 1 << 20;
// Stays in a core's second cache between pread and the CRC.
constexpr uint64_t kReadWindow = 512 << 10;
// Headers of small records lie close together and those of large ones far
// apart: a window in between wastes little on either.
constexpr uint64_t kIndexWindow = 16 << 10;

template <typename T>
void AppendLittleEndian(T value, std::string* out) {
  for (size_t i = 0; i < sizeof(T); ++i) {
    out->push_back(static_cast<char>(value >> (8 * i) & 0xff));
  }
}

template <typename T>
T LoadLittleEndian(const char* data) {
  T value = 0;
  for (size_t i = 0; i < sizeof(T); ++i) {
    value |= static_cast<T>(static_cast<uint8_t>(data[i])) << (8 * i);
  }
  return value;
}

// Whether the four bytes after `data` are its CRC.
bool HasCrc(std::string_view data) {
  return LoadLittleEndian<uint32_t>(data.data() + data.size()) ==
         MaskCrc32c(Crc32c(data));
}

Status DamageAt(const std::string& path, uint64_t offset,
                const Status& status) {
  return Annotate(status,
                  fmt::format("{}: damaged record at byte {}", path, offset));
}

// The length of the record whose header, at `offset`, is `header`, when the
// file of `file_size` bytes holds all of it.
StatusOr<uint64_t> CheckedLength(std::string_view header, uint64_t offset,
                                 uint64_t file_size) {
  LOCKSTEP_ASSIGN_OR_RETURN(const uint64_t length, ParseTfRecordHeader(header));
  const uint64_t left = file_size - offset;  // At least a header.
  if (left < kFrameBytes || length > left - kFrameBytes) {
    return DataLoss("the record needs {} bytes, but the file ends after {}",
                    length + kFrameBytes, left);
  }
  return length;
}

}  // namespace

void AppendTfRecord(std::string_view data, std::string* out) {
  const size_t start = out->size();
  AppendLittleEndian<uint64_t>(data.size(), out);
  AppendLittleEndian<uint32_t>(
      MaskCrc32c(Crc32c(std::string_view(*out).substr(start, 8))), out);
  out->append(data);
  AppendLittleEndian<uint32_t>(MaskCrc32c(Crc32c(data)), out);
}

StatusOr<uint64_t> ParseTfRecordHeader(std::string_view header) {
  if (header.size() < kTfRecordHeaderBytes) {
    return DataLoss("{} bytes are left, but a record's header has {}",
                    header.size(), kTfRecordHeaderBytes);
  }
  const uint32_t stored = LoadLittleEndian<uint32_t>(header.data() + 8);
  const uint32_t actual = MaskCrc32c(Crc32c(header.substr(0, 8)));
  if (stored != actual) {
    return DataLoss("the CRC of its length is {:08x}, but must be {:08x}",
                    stored, actual);
  }
  const uint64_t length = LoadLittleEndian<uint64_t>(header.data());
  if (length > kMaxTfRecordBytes) {
    return DataLoss("its length is {} bytes, but at most {} are allowed",
                    length, kMaxTfRecordBytes);
  }
  return length;
}

Status CheckTfRecordBody(std::string_view body) {
  if (body.size() < kTfRecordFooterBytes) {
    return DataLoss("{} bytes are left, but a CRC has {}", body.size(),
                    kTfRecordFooterBytes);
  }
  const std::string_view data =
      body.substr(0, body.size() - kTfRecordFooterBytes);
  const uint32_t stored = LoadLittleEndian<uint32_t>(data.data() + data.size());
  const uint32_t actual = MaskCrc32c(Crc32c(data));
  if (stored != actual) {
    return DataLoss("the CRC of its data is {:08x}, but must be {:08x}", stored,
                    actual);
  }
  return OkStatus();
}

StatusOr<std::unique_ptr<TfRecordWriter>> TfRecordWriter::Create(
    FileSystem* fs, const std::string& path) {
  LOCKSTEP_ASSIGN_OR_RETURN(auto file, fs->Create(path));
  return std::unique_ptr<TfRecordWriter>(new TfRecordWriter(std::move(file)));
}

Status TfRecordWriter::Append(std::string_view data) {
  if (data.size() > kMaxTfRecordBytes) {
    return InvalidArgument("a record of {} bytes exceeds the limit of {}",
                           data.size(), kMaxTfRecordBytes);
  }
  AppendTfRecord(data, &buffer_);
  ++records_;
  bytes_ += kFrameBytes + data.size();
  return buffer_.size() < kWriteBuffer ? OkStatus() : Flush();
}

Status TfRecordWriter::Flush() {
  const Status status = file_->Append(buffer_);
  buffer_.clear();
  return status;
}

Status TfRecordWriter::Finish() {
  LOCKSTEP_RETURN_IF_ERROR(Flush());
  LOCKSTEP_RETURN_IF_ERROR(file_->Sync());
  return file_->Close();
}

StatusOr<RandomAccessFile> RandomAccessFile::Open(const std::string& path) {
  // O_NONBLOCK: opening a FIFO would wait for a writer for ever.
  Fd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!fd) return ErrnoStatus(errno, fmt::format("opening {}", path));
  struct stat st;
  if (::fstat(fd.get(), &st) != 0) {
    return ErrnoStatus(errno, fmt::format("inspecting {}", path));
  }
  if (!S_ISREG(st.st_mode)) {
    return InvalidArgument("{} is not a regular file", path);
  }
  return RandomAccessFile(path, std::move(fd),
                          static_cast<uint64_t>(st.st_size));
}

Status RandomAccessFile::Read(uint64_t offset, uint64_t size, char* out) const {
  while (size > 0) {
    const ssize_t n = ::pread(fd_.get(), out, size, static_cast<off_t>(offset));
    if (n < 0) {
      if (errno == EINTR) continue;
      return ErrnoStatus(errno,
                         fmt::format("reading {} at byte {}", path_, offset));
    }
    if (n == 0) {
      return DataLoss(
          "reading {} at byte {}: the file ended, it has been truncated", path_,
          offset);
    }
    out += n;
    offset += static_cast<uint64_t>(n);
    size -= static_cast<uint64_t>(n);
  }
  return OkStatus();
}

StatusOr<std::unique_ptr<TfRecordReader>> TfRecordReader::Open(
    const std::string& path) {
  LOCKSTEP_ASSIGN_OR_RETURN(RandomAccessFile file,
                            RandomAccessFile::Open(path));
  return std::unique_ptr<TfRecordReader>(new TfRecordReader(std::move(file)));
}

Status TfRecordReader::Damage(const Status& status) {
  return DamageAt(file_.path(), record_offset_, status);
}

StatusOr<std::string_view> TfRecordReader::Peek(uint64_t size) {
  uint64_t at = next_offset_ - window_offset_;
  if (at + size > window_bytes_) {
    // Keeps bytes that are already here, so each byte is read once.
    const uint64_t have = window_bytes_ - at;
    const uint64_t want =
        std::min(std::max(size, kReadWindow), file_.size() - next_offset_);
    if (window_.size() < want) window_.resize(want);  // Never less: it clears.
    memmove(window_.data(), window_.data() + at, have);
    window_offset_ = next_offset_;
    window_bytes_ = have;
    at = 0;
    LOCKSTEP_RETURN_IF_ERROR(
        file_.Read(window_offset_ + have, want - have, window_.data() + have));
    window_bytes_ = want;
  }
  return std::string_view(window_.data() + at, size);
}

bool TfRecordReader::NextInWindow(std::string_view* record) {
  const uint64_t at = next_offset_ - window_offset_;
  const uint64_t here = window_bytes_ - at;
  if (here < kFrameBytes) return false;
  const std::string_view frame(window_.data() + at, here);
  const uint64_t length = LoadLittleEndian<uint64_t>(frame.data());
  if (length > kMaxTfRecordBytes || length > here - kFrameBytes ||
      !HasCrc(frame.substr(0, 8)) ||
      !HasCrc(frame.substr(kTfRecordHeaderBytes, length))) {
    return false;
  }
  next_offset_ += kFrameBytes + length;
  *record = frame.substr(kTfRecordHeaderBytes, length);
  return true;
}

StatusOr<bool> TfRecordReader::Next(std::string_view* record) {
  LOCKSTEP_RETURN_IF_ERROR(failed_);
  record_offset_ = next_offset_;
  // What that refuses gets its reason, or its bytes, below.
  if (NextInWindow(record)) return true;
  const uint64_t left = file_.size() - next_offset_;
  if (left == 0) return false;
  StatusOr<std::string_view> header =
      Peek(std::min(left, kTfRecordHeaderBytes));
  if (!header.ok()) return failed_ = header.status();
  const StatusOr<uint64_t> length =
      CheckedLength(*header, record_offset_, file_.size());
  if (!length.ok()) return failed_ = Damage(length.status());
  const StatusOr<std::string_view> frame = Peek(kFrameBytes + *length);
  if (!frame.ok()) return failed_ = frame.status();
  next_offset_ += kFrameBytes + *length;
  const Status status = CheckTfRecordBody(frame->substr(kTfRecordHeaderBytes));
  if (!status.ok()) return Damage(status);
  *record = frame->substr(kTfRecordHeaderBytes, *length);
  return true;
}

StatusOr<std::unique_ptr<TfRecordFile>> TfRecordFile::Open(
    const std::string& path) {
  LOCKSTEP_ASSIGN_OR_RETURN(RandomAccessFile file,
                            RandomAccessFile::Open(path));
  std::vector<uint64_t> offsets;
  std::string window;
  uint64_t window_offset = 0;
  uint64_t offset = 0;
  while (offset < file.size()) {
    offsets.push_back(offset);
    const uint64_t left = file.size() - offset;
    const uint64_t needed = std::min(left, kTfRecordHeaderBytes);
    if (offset + needed > window_offset + window.size()) {
      window_offset = offset;
      window.resize(std::min(left, kIndexWindow));
      LOCKSTEP_RETURN_IF_ERROR(
          file.Read(window_offset, window.size(), window.data()));
    }
    const StatusOr<uint64_t> length = CheckedLength(
        std::string_view(window).substr(offset - window_offset, needed), offset,
        file.size());
    if (!length.ok()) return DamageAt(path, offset, length.status());
    offset += kFrameBytes + *length;
  }
  offsets.push_back(offset);
  return std::unique_ptr<TfRecordFile>(
      new TfRecordFile(std::move(file), std::move(offsets)));
}

StatusOr<std::string_view> TfRecordFile::Read(uint64_t index,
                                              std::string* buffer) const {
  if (index >= records()) {
    return OutOfRange("{} has {} records, but no record {}", path(), records(),
                      index);
  }
  const uint64_t frame = offsets_[index + 1] - offsets_[index];
  if (buffer->size() < frame) buffer->resize(frame);
  LOCKSTEP_RETURN_IF_ERROR(file_.Read(offsets_[index], frame, buffer->data()));
  const std::string_view bytes(buffer->data(), frame);
  const StatusOr<uint64_t> length =
      ParseTfRecordHeader(bytes.substr(0, kTfRecordHeaderBytes));
  if (!length.ok()) return DamageAt(path(), offsets_[index], length.status());
  if (*length != frame - kFrameBytes) {
    return DamageAt(path(), offsets_[index],
                    DataLoss("its length changed from {} to {} bytes since the "
                             "file was opened",
                             frame - kFrameBytes, *length));
  }
  const Status body = CheckTfRecordBody(bytes.substr(kTfRecordHeaderBytes));
  if (!body.ok()) return DamageAt(path(), offsets_[index], body);
  return bytes.substr(kTfRecordHeaderBytes, *length);
}

}  // namespace lockstep::worker::data
