// The shim's system calls: descriptors, clocks, whole files.
#ifndef LOCKSTEP_WORKER_SHIM_IO_H_
#define LOCKSTEP_WORKER_SHIM_IO_H_

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/fd.h"

namespace lockstep::worker::shim {

inline constexpr int64_t kNanosPerMilli = 1'000'000;
inline constexpr int64_t kNanosPerSecond = 1'000'000'000;

int64_t WallNanos();  // CLOCK_REALTIME.
int64_t MonoNanos();  // CLOCK_MONOTONIC.
int64_t BootNanos();  // CLOCK_BOOTTIME: goes on while the machine sleeps.
// The earlier one of two times, of which -1 is never.
inline int64_t EarlierOf(int64_t a, int64_t b) {
  if (a < 0 || b < 0) return std::max(a, b);
  return std::min(a, b);
}

// "doing: No such file or directory".
std::string ErrorText(std::string_view doing, int error);

// Prints a line to standard error, with the program's name.
void Complain(const std::string& text);

// Reads from the start, at most `limit` bytes; returns false and sets errno on
// failure.
bool ReadFd(int fd, size_t limit, std::string* out);
bool ReadFile(const std::string& path, std::string* out);
bool WriteFd(int fd, std::string_view data);

// Writes a temporary file, fsyncs, renames, and fsyncs the directory: the
// record is complete or absent. Returns false and sets errno on failure.
bool WriteRecord(const std::string& path, std::string_view bytes);

// recv(2), with the descriptors of the packet, which get close-on-exec. The
// result is above `size` if the packet was.
ssize_t ReceivePacket(int fd, char* buffer, size_t size, std::vector<Fd>* fds);
// Writes `bytes` into a sealed memfd, with position 0. Returns false and sets
// errno on failure.
bool MakeSealed(const char* name, std::string_view bytes, Fd* fd);

// Builds argv and envp for an exec, ending with null; they point into
// `strings`.
std::vector<char*> Pointers(const std::vector<std::string>& strings);

// Gives all signals their default action and unblocks them, as a program
// expects that starts.
void DefaultSignals();

// The directory part of an absolute path, and the rest.
std::string DirName(const std::string& path);
std::string BaseName(const std::string& path);

}  // namespace lockstep::worker::shim

#endif  // LOCKSTEP_WORKER_SHIM_IO_H_
