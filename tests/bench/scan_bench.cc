// I1: a TFRecord scan that checks both CRCs, one core, file in the page cache,
// 1 GiB of 1 KiB and of 115,000-byte records: TfRecordReader beside
//   raw    a bare loop of the same checks over 4 MiB reads (the limit)
//   stdio  fread of header, body and footer into a buffer of its own
// All three add up the bytes of the records, and must agree.
#include <fcntl.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>

#include "common/base/crc32c.h"
#include "common/base/fd.h"
#include "common/base/random.h"
#include "tests/bench/bench_cluster.h"
#include "tests/bench/report.h"
#include "worker/data/tfrecord.h"

namespace lockstep {
namespace {

constexpr int kRounds = 8;
constexpr size_t kTotal = size_t{1} << 30;
constexpr size_t kChunk = 4 << 20;

struct Scan {
  double seconds = 0;
  uint64_t bytes = 0;
  uint64_t records = 0;
};

StatusOr<Scan> Ours(const std::string& path) {
  Scan scan;
  const int64_t start = MonotonicNanos();
  LOCKSTEP_ASSIGN_OR_RETURN(const auto reader, TfRecordReader::Open(path));
  std::string_view record;
  for (;;) {
    LOCKSTEP_ASSIGN_OR_RETURN(const bool more, reader->Next(&record));
    if (!more) break;
    scan.bytes += record.size();
    ++scan.records;
  }
  scan.seconds = static_cast<double>(MonotonicNanos() - start) / 1e9;
  return scan;
}

uint64_t Load64(const char* at) {
  uint64_t value;
  memcpy(&value, at, sizeof(value));
  return value;
}
uint32_t Load32(const char* at) {
  uint32_t value;
  memcpy(&value, at, sizeof(value));
  return value;
}

uint32_t Masked(std::string_view bytes) {
  const uint32_t crc = Crc32c(bytes);
  return MaskCrc32c(crc);
}

StatusOr<Scan> Raw(const std::string& path) {
  Scan scan;
  const int64_t start = MonotonicNanos();
  const Fd file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  std::string buffer(2 * kChunk, '\0');
  size_t have = 0;
  for (;;) {
    const ssize_t got = read(file.get(), buffer.data() + have, kChunk);
    if (got < 0) return Internal("read: {}", strerror(errno));
    if (got == 0) break;
    have += static_cast<size_t>(got);
    size_t at = 0;
    while (have - at >= 12) {
      const char* head = buffer.data() + at;
      const uint64_t size = Load64(head);
      if (Masked({head, 8}) != Load32(head + 8)) return DataLoss("header");
      if (have - at < 16 + size) break;
      if (Masked({head + 12, size}) != Load32(head + 12 + size)) {
        return DataLoss("body");
      }
      scan.bytes += size;
      ++scan.records;
      at += 16 + size;
    }
    memmove(buffer.data(), buffer.data() + at, have - at);
    have -= at;
  }
  scan.seconds = static_cast<double>(MonotonicNanos() - start) / 1e9;
  return scan;
}

StatusOr<Scan> Stdio(const std::string& path) {
  Scan scan;
  const int64_t start = MonotonicNanos();
  FILE* const file = fopen(path.c_str(), "rb");
  if (file == nullptr) return Internal("{}: {}", path, strerror(errno));
  char head[12];
  char foot[4];
  std::string body;
  while (fread(head, 1, sizeof(head), file) == sizeof(head)) {
    body.resize(Load64(head));
    if (Masked({head, 8}) != Load32(head + 8) ||
        fread(body.data(), 1, body.size(), file) != body.size() ||
        fread(foot, 1, sizeof(foot), file) != sizeof(foot) ||
        Masked(body) != Load32(foot)) {
      fclose(file);
      return DataLoss("record {}", scan.records);
    }
    scan.bytes += body.size();
    ++scan.records;
  }
  fclose(file);
  scan.seconds = static_cast<double>(MonotonicNanos() - start) / 1e9;
  return scan;
}

Status Measure(const std::string& dir, size_t record_bytes,
               std::vector<BenchResult>* results) {
  const std::string path = dir + "/records";
  const size_t count = kTotal / record_bytes;
  {
    LOCKSTEP_ASSIGN_OR_RETURN(const auto writer,
                              TfRecordWriter::Create(RealFileSystem(), path));
    const std::string bytes = RandomBytes(record_bytes);
    for (size_t i = 0; i < count; ++i) {
      LOCKSTEP_RETURN_IF_ERROR(writer->Append(bytes));
    }
    LOCKSTEP_RETURN_IF_ERROR(writer->Finish());
  }
  BenchResult raw{"I1-raw", record_bytes, 1,   "bare loop, 4 MiB reads",
                  {},       {},           true};
  BenchResult stdio{"I1-stdio", record_bytes, 1, "stdio loop", {}, {}, true};
  for (int round = 0; round < kRounds; ++round) {
    LOCKSTEP_ASSIGN_OR_RETURN(const Scan a, Ours(path));
    LOCKSTEP_ASSIGN_OR_RETURN(const Scan b, Raw(path));
    LOCKSTEP_ASSIGN_OR_RETURN(const Scan c, Stdio(path));
    const bool equal = a.records == count && b.records == count &&
                       c.records == count && a.bytes == b.bytes &&
                       a.bytes == c.bytes;
    raw.verified &= equal;
    stdio.verified &= equal;
    if (round == 0) continue;
    raw.ours_seconds.push_back({a.seconds});
    raw.peer_seconds.push_back({b.seconds});
    stdio.ours_seconds.push_back({a.seconds});
    stdio.peer_seconds.push_back({c.seconds});
  }
  results->push_back(raw);
  results->push_back(stdio);
  return RealFileSystem()->RemoveAll(path);
}

Status Run(const std::string& json) {
  const BenchDir dir;
  std::vector<BenchResult> results;
  for (const size_t bytes : {size_t{1024}, size_t{115000}}) {
    LOCKSTEP_RETURN_IF_ERROR(Measure(dir.path(), bytes, &results));
  }
  PrintResults(results);
  if (json.empty()) return OkStatus();
  return AddToJson(json, {}, results);
}

}  // namespace
}  // namespace lockstep

int main(int argc, char** argv) {
  const lockstep::BenchFlags flags = lockstep::ParseBenchFlags(argc, argv);
  return lockstep::BenchMain(lockstep::Run(flags.json));
}
