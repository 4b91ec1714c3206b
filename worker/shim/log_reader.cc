#include "worker/shim/log_reader.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <vector>

#include "common/base/fd.h"
#include "common/base/file.h"
#include "common/base/log_line.h"
#include "worker/task/log_files.h"

namespace lockstep::worker::shim {
namespace {

// A segment may be removed between the look at the directory and its opening.
constexpr int kTries = 5;

StatusOr<std::vector<task::LogSegment>> ListSegments(const std::string& path) {
  const size_t slash = path.rfind('/');
  if (slash == std::string::npos) {
    return InvalidArgument("the log {} is not an absolute path", path);
  }
  const std::string dir = slash == 0 ? "/" : path.substr(0, slash);
  const std::string base = path.substr(slash + 1);
  FileSystem* const fs = RealFileSystem();
  LOCKSTEP_ASSIGN_OR_RETURN(const std::vector<std::string> names,
                            fs->List(dir));
  std::vector<task::LogSegment> segments;
  for (const std::string& name : names) {
    uint64_t offset = 0;
    if (!task::ParseSegmentName(base, name, &offset)) continue;
    const StatusOr<FileInfo> info = fs->Stat(JoinPath(dir, name));
    if (info.ok()) segments.push_back({offset, info->size});
  }
  std::sort(segments.begin(), segments.end(),
            [](const task::LogSegment& a, const task::LogSegment& b) {
              return a.offset < b.offset;
            });
  if (segments.empty()) return NotFound("the log {} does not exist", path);
  return segments;
}

StatusOr<std::string> ReadRange(const std::string& path, uint64_t from,
                                uint64_t size) {
  const Fd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd) return ErrnoStatus(errno, "opening the log " + path);
  std::string bytes(size, '\0');
  size_t done = 0;
  while (done < size) {
    const ssize_t n = pread(fd.get(), bytes.data() + done, size - done,
                            static_cast<off_t>(from + done));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return ErrnoStatus(errno, "reading the log " + path);
    if (n == 0) break;
    done += static_cast<size_t>(n);
  }
  bytes.resize(done);
  return bytes;
}

}  // namespace

StatusOr<LogChunk> ReadLog(const std::string& log_path, uint64_t offset,
                           uint64_t max_bytes) {
  Status status;
  for (int i = 0; i < kTries; ++i) {
    LOCKSTEP_ASSIGN_OR_RETURN(const std::vector<task::LogSegment> segments,
                              ListSegments(log_path));
    const task::LogPosition at = task::FindLogPosition(segments, offset);
    LogChunk chunk;
    chunk.offset = chunk.next_offset = offset;
    if (!at.found) return chunk;
    const task::LogSegment& segment = segments[at.segment];
    const uint64_t from = at.offset - segment.offset;
    const uint64_t size = std::min(
        segment.size - from, std::max<uint64_t>(max_bytes, cri::kMaxLogLine));
    StatusOr<std::string> bytes =
        ReadRange(task::SegmentPath(log_path, segment.offset), from, size);
    if (!bytes.ok()) {
      status = bytes.status();
      if (status.code() == StatusCode::kNotFound) continue;
      return status;
    }
    chunk.bytes = *std::move(bytes);
    // The shim may be in the middle of a line.
    chunk.bytes.resize(chunk.bytes.rfind('\n') + 1);
    chunk.offset = at.offset;
    chunk.gap = at.gap;
    chunk.next_offset = chunk.offset + chunk.bytes.size();
    return chunk;
  }
  return status;
}

uint64_t LogEnd(const std::string& log_path) {
  const StatusOr<std::vector<task::LogSegment>> segments =
      ListSegments(log_path);
  if (!segments.ok()) return 0;
  return segments->back().offset + segments->back().size;
}

std::string LogTail(const std::string& log_path, uint64_t bytes) {
  const uint64_t end = LogEnd(log_path);
  std::string tail;
  // It may lie in several segments.
  for (uint64_t at = end - std::min(end, bytes); at < end;) {
    const auto chunk = ReadLog(log_path, at, end - at);
    if (!chunk.ok() || chunk->bytes.empty()) break;
    tail += chunk->bytes;
    at = chunk->next_offset;
  }
  return tail;
}

}  // namespace lockstep::worker::shim
