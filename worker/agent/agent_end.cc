// What is said of a rank and of a gang once they have ended: the program's own
// words, and what it left in its output directory.
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "common/base/clock.h"
#include "common/base/fd.h"
#include "common/base/logging.h"
#include "worker/agent/agent.h"
#include "worker/agent/exits/exit_words.h"
#include "worker/agent/work/output_files.h"
#include "worker/shim/log_reader.h"

namespace lockstep {
namespace {

constexpr size_t kMaxErrorFile = 256 << 10;
// A file system that does not answer must not keep the end of a job from being
// told. Longer than the search itself may take.
constexpr Duration kLongestSearch = std::chrono::seconds(3);

// A file that the rank's user may make whatever he likes of: a link, a pipe.
std::string ReadRanksFile(const std::string& path) {
  const Fd fd(
      open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  struct stat info {};
  if (!fd || fstat(fd.get(), &info) != 0 || !S_ISREG(info.st_mode) ||
      info.st_nlink != 1 || info.st_size > static_cast<off_t>(kMaxErrorFile)) {
    return "";
  }
  std::string text(static_cast<size_t>(info.st_size), '\0');
  const ssize_t n = pread(fd.get(), text.data(), text.size(), 0);
  text.resize(n < 0 ? 0 : static_cast<size_t>(n));
  return text;
}

// The last `bytes` of a log, that perhaps lie in several files.
std::string LogTail(const std::string& path, uint64_t bytes) {
  const uint64_t end = LogEnd(path);
  std::string tail;
  for (uint64_t at = end - std::min(end, bytes); at < end;) {
    const auto chunk = ReadLog(path, at, end - at);
    if (!chunk.ok() || chunk->bytes.empty()) break;
    tail += chunk->bytes;
    at = chunk->next_offset;
  }
  return tail;
}

// Who was killed from outside has said nothing of it, and what its log ends
// with is of something else.
bool HasLastWords(const ExitStatus& exit) {
  if (exit.how == ExitStatus::How::kCode) return true;
  if (exit.how != ExitStatus::How::kSignal) return false;
  switch (exit.value) {
    case SIGABRT:
    case SIGBUS:
    case SIGFPE:
    case SIGILL:
    case SIGSEGV:
    case SIGTRAP:
      return true;
    default:
      return false;
  }
}

bool HasFirstRank(const LocalGang& gang) {
  return std::any_of(gang.status.ranks.begin(), gang.status.ranks.end(),
                     [](const RankStatus& rank) { return rank.rank == 0; });
}

}  // namespace

void Agent::AddLastWords(const RankRef& ref, ExitStatus* exit) {
  if (exit->ok() || !exit->message.empty()) return;
  const LocalGang* gang = core_.Find(ref.gang);
  if (gang == nullptr) return;
  // Who ends because we said so says nothing that counts: but who had ended
  // before does.
  const bool told = gang->assignment.goal >= Goal::kStop;
  const bool before = gang->stopped_at && exit->end_time < *gang->stopped_at;
  if (told && !before) return;
  const RankPaths& paths = InfoOf(ref).paths;
  ExitWords words = WordsOfErrorFile(ReadRanksFile(paths.error_file));
  if (words.location.empty() && HasLastWords(*exit)) {
    // Over 128: what a shell says of a signal.
    const bool crashed =
        exit->how == ExitStatus::How::kSignal || exit->value > 128;
    ExitWords logged = WordsOfLog(LogTail(paths.log, kExitWordsLog), crashed);
    // The error file has no place in one of its shapes, and the class without
    // its package.
    if (logged.message.ends_with(words.message)) {
      words.location = std::move(logged.location);
    }
    if (words.message.empty()) words.message = std::move(logged.message);
  }
  exit->message = std::move(words.message);
  exit->location = std::move(words.location);
}

bool Agent::AwaitsOutputs(const GangKey& key) {
  const LocalGang* gang = core_.Find(key);
  if (gang == nullptr || gang->status.phase != GangPhase::kStopped ||
      !gang->assignment.spec ||
      gang->assignment.spec->output_directory.empty() || !HasFirstRank(*gang)) {
    return false;
  }
  GangInfo& info = gangs_[key];
  const RankStatus& first =
      *std::find_if(gang->status.ranks.begin(), gang->status.ranks.end(),
                    [](const RankStatus& rank) { return rank.rank == 0; });
  if (!first.exit) return false;  // It never ran.
  // After a failure the next attempt waits for this report: what is found then
  // comes after it.
  const bool waits = first.exit->ok();
  if (info.search != OutputSearch::kNone) {
    return waits && info.search == OutputSearch::kRuns;
  }
  info.search = OutputSearch::kRuns;
  output_work_->Add([this, key, alive = alive_,
                     directory = gang->assignment.spec->output_directory] {
    auto found = std::make_shared<std::vector<OutputFile>>(FindOutputFiles(
        directory, OutputLimits(), [] { return MonotonicNow(); }));
    loop_->Post([this, key, found, alive] {
      if (*alive) OnOutputs(key, std::move(*found));
    });
  });
  loop_->At(loop_->Now().mono + kLongestSearch, [this, key, alive = alive_] {
    if (*alive) OnOutputs(key, {});
  });
  return waits;
}

void Agent::OnOutputs(const GangKey& key, std::vector<OutputFile> outputs) {
  const auto it = gangs_.find(key);
  if (core_.Find(key) == nullptr || it == gangs_.end() ||
      it->second.search != OutputSearch::kRuns) {
    return;
  }
  it->second.search = OutputSearch::kDone;
  it->second.outputs = std::move(outputs);
  Report(key);
}

}  // namespace lockstep
