#include "worker/shim/log_writer.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <vector>

#include "worker/task/engine_words.h"
#include "worker/task/log_files.h"

namespace lockstep::worker::shim {
namespace {

using cri::LogLine;
using cri::LogStream;

constexpr int kOpenFlags =
    O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC;
constexpr size_t kBufferBytes = 256 << 10;
constexpr size_t kReadBytes = 64 << 10;
constexpr int kReadsPerTurn = 8;
// Text without a newline becomes a part when nothing followed for kQuietTime.
// The states of a line that is redrawn are written kStateTime apart.
constexpr int64_t kQuietTime = 200 * kNanosPerMilli;
constexpr int64_t kStateTime = 1000 * kNanosPerMilli;
// Interval of retries while the disk is full.
constexpr int64_t kReportTime = 1000 * kNanosPerMilli;
// Before the first read a writer may fill this much without waiting.
constexpr int kPipeBytes = 1 << 20;

// First offsets of the files of the log `path`, in order.
std::vector<uint64_t> Segments(const std::string& path) {
  std::vector<uint64_t> offsets;
  DIR* dir = opendir(DirName(path).c_str());
  if (dir == nullptr) return offsets;
  const std::string base = BaseName(path);
  while (const dirent* entry = readdir(dir)) {
    uint64_t offset = 0;
    if (task::ParseSegmentName(base, entry->d_name, &offset)) {
      offsets.push_back(offset);
    }
  }
  closedir(dir);
  std::sort(offsets.begin(), offsets.end());
  return offsets;
}

// Returns the number of bytes of `data` written; errno explains a short write.
size_t WriteSome(int fd, std::string_view data) {
  size_t done = 0;
  while (done < data.size()) {
    const ssize_t n = write(fd, data.data() + done, data.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) break;
    done += static_cast<size_t>(n);
  }
  return done;
}

// Bytes of the file `fd` up to the end of its last whole line: a writer that
// was killed may have left a part of one.
bool WholeLines(int fd, uint64_t* bytes) {
  struct stat info {};
  if (fstat(fd, &info) != 0) return false;
  const auto size = static_cast<uint64_t>(info.st_size);
  static char buffer[cri::kMaxLogLine];
  const uint64_t from = size - std::min<uint64_t>(size, sizeof(buffer));
  const ssize_t n = pread(fd, buffer, sizeof(buffer), static_cast<off_t>(from));
  if (n < 0) return false;
  const std::string_view end(buffer, static_cast<size_t>(n));
  const size_t newline = end.rfind('\n');
  *bytes = newline == std::string_view::npos ? from : from + newline + 1;
  return true;
}

}  // namespace

bool LogWriter::GoOn() {
  const std::vector<uint64_t> segments = Segments(path_);
  if (segments.empty()) return false;
  const std::string last = task::SegmentPath(path_, segments.back());
  fd_.Reset(open(last.c_str(), O_RDWR | O_NOFOLLOW | O_CLOEXEC));
  if (!fd_ || !WholeLines(fd_.get(), &file_bytes_) ||
      ftruncate(fd_.get(), static_cast<off_t>(file_bytes_)) != 0 ||
      lseek(fd_.get(), 0, SEEK_END) < 0) {
    fd_.Reset();
    return false;
  }
  file_offset_ = segments.back();
  for (const uint64_t offset : segments) {
    if (offset > 0 && offset != file_offset_) full_.push_back(offset);
  }
  return true;
}

bool LogWriter::Open(const std::string& path, uint64_t head_bytes,
                     uint64_t tail_bytes, bool append, std::string* error) {
  path_ = path;
  head_bytes_ = head_bytes;
  segment_bytes_ =
      std::max<uint64_t>(tail_bytes / task::kTailSegments, cri::kMaxLogLine);
  if (append && GoOn()) return true;
  file_bytes_ = 0;
  for (const uint64_t offset : Segments(path)) {
    if (offset > 0) unlink(task::SegmentPath(path, offset).c_str());
  }
  fd_.Reset(open(path.c_str(), kOpenFlags, 0640));
  if (fd_) return true;
  *error = ErrorText("creating the log " + path, errno);
  return false;
}

uint64_t LogWriter::FileLimit() const {
  return file_offset_ == 0 ? head_bytes_ : segment_bytes_;
}

void LogWriter::Append(const LogLine& line) {
  if (lost_unreported_ > 0) AppendGapLine(line.unix_nanos);
  std::string bytes;
  cri::AppendLogLine(line, &bytes);
  AppendBytes(bytes);
}

void LogWriter::AppendGapLine(int64_t now) {
  gap_line_.clear();
  cri::AppendLogLine({now, LogStream::kStderr, true,
                      "lockstep: " + std::to_string(lost_unreported_) +
                          " bytes of output were lost: " + lost_why_},
                     &gap_line_);
  gap_bytes_ = lost_unreported_;
  lost_unreported_ = 0;
  AppendBytes(std::string(gap_line_));
}

void LogWriter::ReportLostBytes() {
  Flush();
  if (lost_unreported_ == 0) return;
  AppendGapLine(WallNanos());
  Flush();
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
    if (!fd_) return Lose("creating the log " + path, errno);
  }
  const size_t written = WriteSome(fd_.get(), buffer_);
  const int error = errno;
  const bool all = written == buffer_.size();
  // Whole lines stay, as a reader may have taken them.
  const size_t whole =
      std::string_view(buffer_).substr(0, written).rfind('\n') + 1;
  const size_t gap_at =
      gap_line_.empty() ? std::string::npos : buffer_.find(gap_line_);
  if (gap_at != std::string::npos && gap_at + gap_line_.size() <= whole) {
    gap_line_.clear();
    gap_bytes_ = 0;
  }
  file_bytes_ += whole;
  buffer_.erase(0, whole);
  if (all) return;
  if (ftruncate(fd_.get(), static_cast<off_t>(file_bytes_)) != 0 ||
      lseek(fd_.get(), static_cast<off_t>(file_bytes_), SEEK_SET) < 0) {
    fd_.Reset();
  }
  Lose("writing the log " + path_, error);
}

void LogWriter::Lose(std::string_view doing, int error) {
  uint64_t bytes = buffer_.size();
  if (!gap_line_.empty() && buffer_.find(gap_line_) != std::string::npos) {
    // The gap mark is not output; its bytes are still unreported.
    bytes -= gap_line_.size();
    lost_unreported_ += gap_bytes_;
    gap_line_.clear();
    gap_bytes_ = 0;
  }
  lost_ += bytes;
  lost_unreported_ += bytes;
  lost_why_ = strerror(error);
  report_due_ = MonoNanos() + kReportTime;
  if (error_.empty()) error_ = ErrorText(doing, error);
  buffer_.clear();
}

void LogWriter::Sync() {
  ReportLostBytes();
  if (fd_ && fsync(fd_.get()) != 0 && error_.empty()) {
    error_ = ErrorText("syncing the log " + path_, errno);
  }
}

void OutputPipe::Attach(Fd fd) {
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
    const size_t length = std::min(data.find_first_of("\r\n"), data.size());
    if (length > 0) TakeText(data.substr(0, length), now);
    data.remove_prefix(length);
    if (data.empty()) break;
    if (data.front() == '\n') {
      AppendFull(now);
    } else {
      redrawn_ = returned_ = true;
    }
    data.remove_prefix(1);
  }
  ScheduleNextPart();
}

void OutputPipe::TakeText(std::string_view text, int64_t now) {
  if (returned_) {
    // It is written over what the line shows.
    pending_.clear();
    if (has_parts_) pending_.push_back('\r');
    returned_ = false;
  }
  while (pending_.size() + text.size() > cri::kMaxLogText) {
    const size_t room = cri::kMaxLogText - pending_.size();
    pending_.append(text.substr(0, room));
    text.remove_prefix(room);
    WritePart(now);
  }
  pending_.append(text);
}

void OutputPipe::WritePart(int64_t now) {
  log_->Append({now, stream_, false, pending_});
  pending_.clear();
  has_parts_ = true;
}

void OutputPipe::AppendFull(int64_t now) {
  log_->Append({now, stream_, true, pending_});
  if (pending_.starts_with('\r')) pending_.erase(0, 1);
  if (keep_last_ && !pending_.empty() && !task::IsEngineAdvice(pending_)) {
    last_.swap(pending_);
  }
  pending_.clear();
  has_parts_ = redrawn_ = returned_ = false;
  part_due_ = -1;
}

void OutputPipe::ScheduleNextPart() {
  if (pending_.empty()) {
    part_due_ = -1;
    return;
  }
  const int64_t quiet = MonoNanos() + kQuietTime;
  if (!redrawn_) {
    part_due_ = quiet;
  } else if (part_due_ < 0) {
    // What comes meanwhile does not put it off.
    part_due_ = std::max(quiet, last_state_ + kStateTime);
  }
}

void OutputPipe::FlushPart() {
  part_due_ = -1;
  if (pending_.empty()) return;
  WritePart(WallNanos());
  if (redrawn_) last_state_ = MonoNanos();
}

void OutputPipe::Close() {
  // Parts without an end would be of no line.
  if (!pending_.empty() || has_parts_) AppendFull(WallNanos());
  fd_.Reset();
}

}  // namespace lockstep::worker::shim
