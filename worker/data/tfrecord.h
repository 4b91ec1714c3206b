// TFRecord files: TensorFlow's container of byte strings.
//
// A file is records one after another; a record is
//   uint64 length | uint32 masked CRC32C of those 8 bytes |
//   `length` bytes of data | uint32 masked CRC32C of the data
// all little-endian (tensorflow/core/lib/io/record_writer.h). Both CRCs are
// always verified. Damage is DataLoss that names the file and the byte offset
// at which the damaged record begins. A length is only used after its CRC and
// the size of the file agree with it.
//
// Files are read with pread(2) and not through mmap: if a mapped file is
// truncated, or the disk fails, the process dies (SIGBUS), while pread returns
// an error; and a large read is the faster of the two.
#ifndef LOCKSTEP_WORKER_DATA_TFRECORD_H_
#define LOCKSTEP_WORKER_DATA_TFRECORD_H_

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/fd.h"
#include "common/base/file.h"
#include "common/base/status.h"

namespace lockstep::worker::data {

inline constexpr uint64_t kTfRecordHeaderBytes = 12;
inline constexpr uint64_t kTfRecordFooterBytes = 4;
// A longer record is refused by writer and readers.
inline constexpr uint64_t kMaxTfRecordBytes = uint64_t{256} << 20;

// Appends `data` as one record to `out`.
// REQUIRES: data.size() <= kMaxTfRecordBytes.
void AppendTfRecord(std::string_view data, std::string* out);

// The length in a record's header, verified. DataLoss (without a place) where
// the bytes are fewer than kTfRecordHeaderBytes, the CRC does not fit or the
// length is above kMaxTfRecordBytes.
StatusOr<uint64_t> ParseTfRecordHeader(std::string_view header);

// DataLoss (without a place) unless the last 4 bytes of `body` are the masked
// CRC32C of those before them.
Status CheckTfRecordBody(std::string_view body);

// Writes one file. Not synchronised.
class TfRecordWriter {
 public:
  // Creates or truncates `path`.
  static StatusOr<std::unique_ptr<TfRecordWriter>> Create(
      FileSystem* fs, const std::string& path);

  // InvalidArgument when `data` is longer than kMaxTfRecordBytes.
  Status Append(std::string_view data);
  // Writes the buffer, makes the file durable and closes it. A writer that is
  // destroyed without it leaves an incomplete file.
  Status Finish();

  uint64_t records() const { return records_; }
  // The size of the file once it is finished.
  uint64_t bytes() const { return bytes_; }

 private:
  explicit TfRecordWriter(std::unique_ptr<WritableFile> file)
      : file_(std::move(file)) {}
  Status Flush();

  const std::unique_ptr<WritableFile> file_;
  std::string buffer_;
  uint64_t records_ = 0;
  uint64_t bytes_ = 0;
};

// Bytes of a regular file at any offset, with the path in every error.
// Safe from any thread.
class RandomAccessFile {
 public:
  // NotFound, PermissionDenied; InvalidArgument: it is not a regular file.
  static StatusOr<RandomAccessFile> Open(const std::string& path);

  // Exactly `size` bytes from `offset`. DataLoss when the file, shortened
  // since it was opened, ends before them.
  Status Read(uint64_t offset, uint64_t size, char* out) const;

  const std::string& path() const { return path_; }
  uint64_t size() const { return size_; }

 private:
  RandomAccessFile(std::string path, Fd fd, uint64_t size)
      : path_(std::move(path)), fd_(std::move(fd)), size_(size) {}

  std::string path_;
  Fd fd_;
  uint64_t size_;
};

// Reads one file from its beginning to its end. Not synchronised.
class TfRecordReader {
 public:
  static StatusOr<std::unique_ptr<TfRecordReader>> Open(
      const std::string& path);

  // The next record in `*record`, valid until the next call; false at the
  // end of the file. After a DataLoss where can_continue() holds, the next
  // call goes on with the record after the damaged one; otherwise every
  // further call returns the same error.
  StatusOr<bool> Next(std::string_view* record);

  // The damaged record's length was right, so that its end is known.
  bool can_continue() const { return failed_.ok(); }
  // The offset of the record of the last call to Next.
  uint64_t record_offset() const { return record_offset_; }
  const std::string& path() const { return file_.path(); }

 private:
  explicit TfRecordReader(RandomAccessFile file) : file_(std::move(file)) {}
  // Makes `size` bytes at next_offset_ available in the window.
  StatusOr<std::string_view> Peek(uint64_t size);
  // The record at next_offset_, where the window holds it and it is sound.
  bool NextInWindow(std::string_view* record);
  Status Damage(const Status& status);

  const RandomAccessFile file_;
  std::string window_;          // Begins with bytes of the file ...
  uint64_t window_offset_ = 0;  // ... from here ...
  uint64_t window_bytes_ = 0;   // ... as many.
  uint64_t next_offset_ = 0;
  uint64_t record_offset_ = 0;
  Status failed_;
};

// The records of one file in any order. Safe from any thread once open.
class TfRecordFile {
 public:
  // Reads every record's header to find where the records are; the data is
  // verified when it is read. DataLoss names the offset of a bad header.
  static StatusOr<std::unique_ptr<TfRecordFile>> Open(const std::string& path);

  uint64_t records() const { return offsets_.size() - 1; }
  // The offset of record `index`. REQUIRES: index < records().
  uint64_t offset(uint64_t index) const { return offsets_[index]; }
  const std::string& path() const { return file_.path(); }

  // Returns record `index` after verifying both CRCs. `*buffer` is scratch
  // space that holds the record; reuse it for the next one. OutOfRange: the
  // record does not exist.
  StatusOr<std::string_view> Read(uint64_t index, std::string* buffer) const;

 private:
  TfRecordFile(RandomAccessFile file, std::vector<uint64_t> offsets)
      : file_(std::move(file)), offsets_(std::move(offsets)) {}

  const RandomAccessFile file_;
  const std::vector<uint64_t> offsets_;  // One more than there are records.
};

}  // namespace lockstep::worker::data

#endif  // LOCKSTEP_WORKER_DATA_TFRECORD_H_
