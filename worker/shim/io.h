// The shim's system calls: descriptors, clocks, whole files.
#ifndef LOCKSTEP_WORKER_SHIM_IO_H_
#define LOCKSTEP_WORKER_SHIM_IO_H_

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/fd.h"

namespace lockstep::shim {

inline constexpr int64_t kNanosPerMilli = 1'000'000;
inline constexpr int64_t kNanosPerSecond = 1'000'000'000;

int64_t WallNanos();  // CLOCK_REALTIME.
int64_t MonoNanos();  // CLOCK_MONOTONIC.
// The earlier one of two times, of which -1 is never.
inline int64_t EarlierOf(int64_t a, int64_t b) {
  if (a < 0 || b < 0) return std::max(a, b);
  return std::min(a, b);
}

// "doing: No such file or directory".
std::string ErrorText(std::string_view doing, int error);

// A line on standard error, beginning with the program's name.
void Complain(const std::string& text);

// From its start, at most `limit` bytes; false and errno on failure.
bool ReadFd(int fd, size_t limit, std::string* out);
bool ReadFile(const std::string& path, std::string* out);
bool WriteFd(int fd, std::string_view data);

// Temporary file beside it, fsync, rename, fsync of the directory: the record
// is whole or not there. False and errno on failure.
bool WriteRecord(const std::string& path, std::string_view bytes);

// argv and envp of an exec, ended by null; they point into `strings`.
std::vector<char*> Pointers(const std::vector<std::string>& strings);

// All signals as a program finds them that starts: none is ignored or blocked.
void DefaultSignals();

// The directory part of an absolute path, and what follows it.
std::string DirName(const std::string& path);
std::string BaseName(const std::string& path);

}  // namespace lockstep::shim

#endif  // LOCKSTEP_WORKER_SHIM_IO_H_
