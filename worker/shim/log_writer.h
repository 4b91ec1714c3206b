// Writes a rank's output as lines of its log (common/base/log_line.h) to the
// files of worker/task/log_files.h.
//
// Nothing here waits for a reader, and a full disk costs log lines, never the
// rank's progress: lost bytes are counted and reported in the log as soon as
// writing works again ("lockstep: 812 bytes of output were lost: No space left
// on device"). A complete line in a file stays there, because a reader may have
// read it.
#ifndef LOCKSTEP_WORKER_SHIM_LOG_WRITER_H_
#define LOCKSTEP_WORKER_SHIM_LOG_WRITER_H_

#include <cstdint>
#include <deque>
#include <string>
#include <string_view>

#include "common/base/log_line.h"
#include "worker/shim/io.h"

namespace lockstep::worker::shim {

class LogWriter {
 public:
  // Creates an empty log and removes segments of an earlier one. With `append`,
  // continues an earlier log after its last complete line.
  bool Open(const std::string& path, uint64_t head_bytes, uint64_t tail_bytes,
            bool append, std::string* error);
  // Appends one line; Flush writes it to the file.
  void Append(const cri::LogLine& line);
  void Flush();
  // Time of the next ReportLostBytes, of CLOCK_MONOTONIC; -1 if no loss is
  // unreported.
  int64_t report_due() const { return lost_unreported_ > 0 ? report_due_ : -1; }
  // Writes the gap line for lost bytes if writing works again.
  void ReportLostBytes();
  void Sync();

  uint64_t end_offset() const { return file_offset_ + file_bytes_; }
  uint64_t lost_bytes() const { return lost_; }
  const std::string& error() const { return error_; }

 private:
  bool GoOn();
  uint64_t FileLimit() const;
  void AppendBytes(std::string_view line);
  void NextFile();
  // Drops the rest of buffer_.
  void Lose(std::string_view doing, int error);
  void AppendGapLine(int64_t now);

  std::string path_;
  uint64_t head_bytes_ = 0;
  uint64_t segment_bytes_ = 0;
  Fd fd_;                      // None: making the next segment failed.
  uint64_t file_offset_ = 0;   // Where the file being written begins.
  uint64_t file_bytes_ = 0;    // Whole lines in it.
  std::string buffer_;         // Whole lines on their way to it.
  std::deque<uint64_t> full_;  // Begin of the full tail segments kept.
  uint64_t lost_ = 0;
  uint64_t lost_unreported_ = 0;
  std::string lost_why_;  // The system's word for it.
  int64_t report_due_ = -1;
  // The gap line in buffer_, and the number of bytes that it reports.
  std::string gap_line_;
  uint64_t gap_bytes_ = 0;
  std::string error_;
};

// One of the rank's pipes: cuts its bytes into lines. A line that carriage
// returns redraw, such as a progress bar, keeps only its last state and about
// one state per second, as parts that begin with a carriage return
// (cri::AppendToLine).
class OutputPipe {
 public:
  OutputPipe(cri::LogStream stream, LogWriter* log)
      : stream_(stream), log_(log) {}

  void Attach(Fd fd);  // Made non-blocking.
  bool open() const { return static_cast<bool>(fd_); }
  int fd() const { return fd_.get(); }

  // Reads available bytes, up to a limit, so two streams share the loop.
  void OnReadable();
  // Time at which text without a newline is written as a part, of
  // CLOCK_MONOTONIC; -1 if there is none. Text that is not redrawn waits until
  // nothing has arrived for 200 ms, so a prompt is shown and a line written in
  // pieces stays whole.
  int64_t part_due() const { return part_due_; }
  // Writes it as a part (P).
  void FlushPart();
  // Ends the stream: the rest becomes a full line.
  void Close();

  // Keeps the last non-empty line from now on.
  void KeepLastLine() { keep_last_ = true; }
  const std::string& last_line() const { return last_; }

 private:
  void Take(std::string_view data);
  // REQUIRES: `text` is not empty and has no newline or carriage return.
  void TakeText(std::string_view text, int64_t now);
  void AppendFull(int64_t now);
  void WritePart(int64_t now);
  void ScheduleNextPart();

  const cri::LogStream stream_;
  LogWriter* const log_;
  Fd fd_;

  // Bytes of the unfinished line that are in no part yet. They begin with a
  // carriage return if they replace parts.
  std::string pending_;
  // Parts of that line are in the log.
  bool has_parts_ = false;
  // The line has a carriage return.
  bool redrawn_ = false;
  // The last byte of the line was a carriage return.
  bool returned_ = false;
  bool keep_last_ = false;
  std::string last_;
  int64_t part_due_ = -1;
  // Time of the last written state of a redrawn line, of CLOCK_MONOTONIC.
  int64_t last_state_ = INT64_MIN / 2;
};

}  // namespace lockstep::worker::shim

#endif  // LOCKSTEP_WORKER_SHIM_LOG_WRITER_H_
