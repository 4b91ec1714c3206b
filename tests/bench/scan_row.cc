// I1: reading records.
#include <fcntl.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>

#include "common/base/crc32c.h"
#include "common/base/fd.h"
#include "common/base/file.h"
#include "common/base/random.h"
#include "tests/bench/cluster_rows.h"
#include "worker/data/tfrecord.h"

namespace lockstep {
namespace {

using worker::data::TfRecordReader;
using worker::data::TfRecordWriter;

constexpr size_t kTotal = size_t{1} << 30;
constexpr size_t kChunk = 4 << 20;

// All three add up the bytes of the records, and must agree.
struct Scan {
  uint64_t bytes = 0;
  uint64_t records = 0;
  bool operator==(const Scan&) const = default;
};

StatusOr<Scan> ScanByReader(const std::string& path) {
  Scan scan;
  LOCKSTEP_ASSIGN_OR_RETURN(const auto reader, TfRecordReader::Open(path));
  std::string_view record;
  for (;;) {
    LOCKSTEP_ASSIGN_OR_RETURN(const bool more, reader->Next(&record));
    if (!more) return scan;
    scan.bytes += record.size();
    ++scan.records;
  }
}

template <typename T>
T Load(const char* at) {
  T value;
  memcpy(&value, at, sizeof(value));
  return value;
}

bool HasCrc(std::string_view bytes, const char* stored) {
  return MaskCrc32c(Crc32c(bytes)) == Load<uint32_t>(stored);
}

StatusOr<Scan> ScanBare(const std::string& path) {
  Scan scan;
  const Fd file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  std::string buffer(2 * kChunk, '\0');
  size_t have = 0;
  for (;;) {
    const ssize_t got = read(file.get(), buffer.data() + have, kChunk);
    if (got < 0) return ErrnoStatus(errno, "reading " + path);
    if (got == 0) return scan;
    have += static_cast<size_t>(got);
    size_t at = 0;
    while (have - at >= 12) {
      const char* const head = buffer.data() + at;
      const auto size = Load<uint64_t>(head);
      if (!HasCrc({head, 8}, head + 8)) return DataLoss("header");
      if (have - at < 16 + size) break;
      if (!HasCrc({head + 12, size}, head + 12 + size)) {
        return DataLoss("body");
      }
      scan.bytes += size;
      ++scan.records;
      at += 16 + size;
    }
    memmove(buffer.data(), buffer.data() + at, have - at);
    have -= at;
  }
}

StatusOr<Scan> ScanByStdio(const std::string& path) {
  Scan scan;
  const std::unique_ptr<FILE, int (*)(FILE*)> file(fopen(path.c_str(), "rb"),
                                                   fclose);
  if (!file) return ErrnoStatus(errno, path);
  char head[12];
  char foot[4];
  std::string body;
  while (fread(head, 1, sizeof(head), file.get()) == sizeof(head)) {
    body.resize(Load<uint64_t>(head));
    if (!HasCrc({head, 8}, head + 8) ||
        fread(body.data(), 1, body.size(), file.get()) != body.size() ||
        fread(foot, 1, sizeof(foot), file.get()) != sizeof(foot) ||
        !HasCrc(body, foot)) {
      return DataLoss("record {}", scan.records);
    }
    scan.bytes += body.size();
    ++scan.records;
  }
  return scan;
}

Status WriteRecords(const std::string& path, size_t bytes, size_t count) {
  LOCKSTEP_ASSIGN_OR_RETURN(const auto writer,
                            TfRecordWriter::Create(RealFileSystem(), path));
  const std::string record = RandomBytes(bytes);
  for (size_t i = 0; i < count; ++i) {
    LOCKSTEP_RETURN_IF_ERROR(writer->Append(record));
  }
  return writer->Finish();
}

}  // namespace

Status RunI1(RowRun* run) {
  const std::string path = run->dir.path() + "/records";
  for (const size_t bytes : {size_t{1024}, size_t{115000}}) {
    const size_t count = kTotal / bytes;
    LOCKSTEP_RETURN_IF_ERROR(WriteRecords(path, bytes, count));
    bool verified = true;
    const auto timed = [&](StatusOr<Scan> (*scan)(const std::string&)) {
      return Timed([&, scan]() -> Status {
        LOCKSTEP_ASSIGN_OR_RETURN(const Scan seen, scan(path));
        verified &= seen == Scan{count * bytes, count};
        return OkStatus();
      });
    };
    LOCKSTEP_RETURN_IF_ERROR(run->Compare(
        8, 1, {timed(ScanByReader), timed(ScanBare), timed(ScanByStdio)},
        {{"I1-raw", "bare loop, 4 MiB reads", 0, 1, 1, bytes, &verified},
         {"I1-stdio", "stdio loop", 0, 2, 1, bytes, &verified}}));
    LOCKSTEP_RETURN_IF_ERROR(RealFileSystem()->RemoveAll(path));
  }
  return OkStatus();
}

}  // namespace lockstep
