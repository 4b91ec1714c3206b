#include "worker/shim/log_writer.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>

#include "worker/task/log_files.h"

namespace lockstep::shim {
namespace {

using cri::LogLine;
using cri::LogStream;

constexpr int kOpenFlags =
    O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC;
constexpr size_t kBufferBytes = 256 << 10;
constexpr size_t kReadBytes = 64 << 10;
constexpr int kReadsPerTurn = 8;
// Before the first read a writer may fill this much without waiting.
constexpr int kPipeBytes = 1 << 20;

void RemoveOldSegments(const std::string& path) {
  DIR* dir = opendir(DirName(path).c_str());
  if (dir == nullptr) return;
  const std::string base = BaseName(path);
  while (const dirent* entry = readdir(dir)) {
    uint64_t offset = 0;
    if (task::ParseSegmentName(base, entry->d_name, &offset) && offset > 0) {
      unlinkat(dirfd(dir), entry->d_name, 0);
    }
  }
  closedir(dir);
}

}  // namespace

bool LogWriter::Open(const std::string& path, uint64_t head_bytes,
                     uint64_t tail_bytes, std::string* error) {
  path_ = path;
  head_bytes_ = head_bytes;
  segment_bytes_ =
      std::max<uint64_t>(tail_bytes / task::kTailSegments, cri::kMaxLogLine);
  RemoveOldSegments(path);
  fd_.Reset(open(path.c_str(), kOpenFlags, 0640));
  if (fd_) return true;
  *error = ErrorText("making the log " + path, errno);
  return false;
}

uint64_t LogWriter::FileLimit() const {
  return file_offset_ == 0 ? head_bytes_ : segment_bytes_;
}

void LogWriter::Append(const LogLine& line) {
  if (lost_unsaid_ > 0) SayWhatWasLost(line.unix_nanos);
  std::string bytes;
  cri::AppendLogLine(line, &bytes);
  AppendBytes(bytes);
}

void LogWriter::SayWhatWasLost(int64_t now) {
  std::string bytes;
  cri::AppendLogLine(
      {now, LogStream::kStderr, true, cri::LogGapText(lost_unsaid_)}, &bytes);
  lost_unsaid_ = 0;
  AppendBytes(bytes);
}

void LogWriter::AppendBytes(std::string_view line) {
  const uint64_t in_file = file_bytes_ + buffer_.size();
  if (in_file > 0 && in_file + line.size() > FileLimit()) {
    Flush();
    // Else nothing of it was written (the disk is full) and the file goes on.
    if (file_bytes_ > 0) NextFile();
  }
  buffer_.append(line);
  if (buffer_.size() >= kBufferBytes) Flush();
}

void LogWriter::NextFile() {
  if (file_offset_ > 0) full_.push_back(file_offset_);
  file_offset_ += file_bytes_;
  file_bytes_ = 0;
  fd_.Reset();
  while (full_.size() > static_cast<size_t>(task::kTailSegments)) {
    unlink(task::SegmentPath(path_, full_.front()).c_str());
    full_.pop_front();
  }
}

void LogWriter::Flush() {
  if (buffer_.empty()) return;
  if (!fd_) {
    const std::string path = task::SegmentPath(path_, file_offset_);
    fd_.Reset(open(path.c_str(), kOpenFlags, 0640));
    if (!fd_) return Lose(buffer_.size(), "making the log " + path, errno);
  }
  if (WriteFd(fd_.get(), buffer_)) {
    file_bytes_ += buffer_.size();
    buffer_.clear();
    return;
  }
  const int error = errno;
  // Back to the last whole line.
  if (ftruncate(fd_.get(), static_cast<off_t>(file_bytes_)) != 0 ||
      lseek(fd_.get(), static_cast<off_t>(file_bytes_), SEEK_SET) < 0) {
    fd_.Reset();
  }
  Lose(buffer_.size(), "writing the log " + path_, error);
}

void LogWriter::Lose(uint64_t bytes, std::string_view doing, int error) {
  lost_ += bytes;
  lost_unsaid_ += bytes;
  if (error_.empty()) error_ = ErrorText(doing, error);
  buffer_.clear();
}

void LogWriter::Sync() {
  Flush();
  if (lost_unsaid_ > 0) {
    SayWhatWasLost(WallNanos());
    Flush();
  }
  if (fd_ && fsync(fd_.get()) != 0 && error_.empty()) {
    error_ = ErrorText("syncing the log " + path_, errno);
  }
}

void OutputPipe::Attach(UniqueFd fd) {
  fd_ = std::move(fd);
  fcntl(fd_.get(), F_SETFL, O_NONBLOCK);
  // As much as the system's limit lets us; less only means more switches.
  (void)fcntl(fd_.get(), F_SETPIPE_SZ, kPipeBytes);
}

void OutputPipe::OnReadable() {
  static char buffer[kReadBytes];
  for (int i = 0; i < kReadsPerTurn && fd_; ++i) {
    const ssize_t n = read(fd_.get(), buffer, sizeof(buffer));
    if (n > 0) {
      Take(std::string_view(buffer, static_cast<size_t>(n)));
    } else if (n < 0 && errno == EINTR) {
      continue;
    } else if (n < 0 && errno == EAGAIN) {
      return;
    } else {
      return Close();
    }
  }
}

void OutputPipe::Take(std::string_view data) {
  const int64_t now = WallNanos();
  while (!data.empty()) {
    const size_t newline = data.find('\n');
    const size_t length = std::min(newline, data.size());
    const size_t room = cri::kMaxLogText - pending_.size();
    if (length > room) {
      pending_.append(data.substr(0, room));
      data.remove_prefix(room);
      log_->Append({now, stream_, false, pending_});
      pending_.clear();
      continue;
    }
    pending_.append(data.substr(0, length));
    data.remove_prefix(length);
    if (newline == std::string_view::npos) break;
    data.remove_prefix(1);
    log_->Append({now, stream_, true, pending_});
    pending_.clear();
  }
  if (pending_.empty()) {
    pending_since_ = -1;
  } else {
    pending_since_ = MonoNanos();
  }
}

void OutputPipe::FlushPart() {
  if (pending_.empty()) return;
  log_->Append({WallNanos(), stream_, false, pending_});
  pending_.clear();
  pending_since_ = -1;
}

void OutputPipe::Close() {
  if (!pending_.empty()) log_->Append({WallNanos(), stream_, true, pending_});
  pending_.clear();
  pending_since_ = -1;
  fd_.Reset();
}

}  // namespace lockstep::shim
