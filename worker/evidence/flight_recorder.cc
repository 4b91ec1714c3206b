#include "worker/evidence/flight_recorder.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>

#include "common/base/fd.h"
#include "common/base/file.h"
#include "worker/evidence/flight_trace.h"

namespace lockstep::worker::evidence {
namespace {

constexpr std::string_view kPipeName = ".lockstep-flight-pipe-";
constexpr std::string_view kDumpName = ".lockstep-flight-dump-";
constexpr std::string_view kPipeEnd = ".pipe";
// A rank has one process group process as a rule.
constexpr size_t kMostPipes = 16;
// 2,000 operations with their stacks have about 2 MiB.
constexpr off_t kMostTrace = 32 << 20;

// The numbers in the names of pipes.
std::vector<std::string> PipesIn(const std::string& directory) {
  std::vector<std::string> ranks;
  const std::unique_ptr<DIR, int (*)(DIR*)> dir(opendir(directory.c_str()),
                                                &closedir);
  if (!dir) return ranks;
  while (const dirent* const entry = readdir(dir.get())) {
    std::string_view name = entry->d_name;
    if (!name.starts_with(kPipeName) || !name.ends_with(kPipeEnd)) continue;
    name.remove_prefix(kPipeName.size());
    name.remove_suffix(kPipeEnd.size());
    const bool number = !name.empty() && name.size() < 10 &&
                        std::all_of(name.begin(), name.end(), [](char c) {
                          return c >= '0' && c <= '9';
                        });
    if (number) ranks.emplace_back(name);
    if (ranks.size() == kMostPipes) break;
  }
  return ranks;
}

// False: no process waits at the other end, or it is no pipe.
bool Ring(const std::string& pipe) {
  const Fd fd(
      open(pipe.c_str(), O_WRONLY | O_NONBLOCK | O_NOFOLLOW | O_CLOEXEC));
  struct stat info {};
  return fd && fstat(fd.get(), &info) == 0 && S_ISFIFO(info.st_mode) &&
         write(fd.get(), "1", 1) == 1;
}

int64_t ModifyTime(const struct stat& info) {
  return int64_t{info.st_mtim.tv_sec} * 1'000'000'000 + info.st_mtim.tv_nsec;
}

int64_t TimeOf(const std::string& path) {
  struct stat info {};
  return lstat(path.c_str(), &info) == 0 ? ModifyTime(info) : 0;
}

// A file that was written after `before`; nullopt: there is none so far.
std::optional<std::string> ReadNewer(const std::string& path, int64_t before) {
  const Fd fd(
      open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  struct stat info {};
  if (!fd || fstat(fd.get(), &info) != 0 || !S_ISREG(info.st_mode) ||
      info.st_size > kMostTrace || ModifyTime(info) <= before) {
    return std::nullopt;
  }
  std::string bytes(static_cast<size_t>(info.st_size), '\0');
  const ssize_t count = pread(fd.get(), bytes.data(), bytes.size(), 0);
  bytes.resize(count < 0 ? 0 : static_cast<size_t>(count));
  return bytes;
}

}  // namespace

std::string FlightPipePrefix(const std::string& directory) {
  return JoinPath(directory, std::string(kPipeName));
}

std::string FlightDumpPrefix(const std::string& directory) {
  return JoinPath(directory, std::string(kDumpName));
}

FlightRecorders::FlightRecorders(const std::string& directory) {
  for (const std::string& rank : PipesIn(directory)) {
    Asked asked;
    asked.dump = FlightDumpPrefix(directory) + rank;
    asked.before = TimeOf(asked.dump);
    if (Ring(FlightPipePrefix(directory) + rank + std::string(kPipeEnd))) {
      asked_.push_back(std::move(asked));
    }
  }
}

bool FlightRecorders::Read() {
  bool all = true;
  for (Asked& asked : asked_) {
    if (asked.answered) continue;
    const auto bytes = ReadNewer(asked.dump, asked.before);
    // It may be in the middle of being written: a trace has an end.
    auto records =
        bytes ? ParseFlightTrace(*bytes)
              : StatusOr<std::vector<FlightRecord>>(NotFound("no dump so far"));
    if (!records.ok()) {
      all = false;
      continue;
    }
    asked.answered = true;
    records_.insert(records_.end(), records->begin(), records->end());
  }
  return all;
}

std::vector<FlightRecord> FlightRecorders::TakeRecords() {
  if (records_.size() > kMaxFlightRecords) {
    records_.erase(
        records_.begin(),
        records_.end() - static_cast<std::ptrdiff_t>(kMaxFlightRecords));
  }
  return std::move(records_);
}

}  // namespace lockstep::worker::evidence
