#include "worker/agent/readings/rank_signs.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "common/base/log_line.h"
#include "worker/shim/log_reader.h"

namespace lockstep::worker::agent {
namespace {

// Read of a log in one round. A program that writes more is seen by its newest
// lines.
constexpr uint64_t kMostLog = 16 << 10;

bool MadeSteps(const RankProgress& before, const RankProgress& now) {
  return now.step > before.step || now.committed_step > before.committed_step ||
         now.samples > before.samples || now.collectives > before.collectives;
}

// What may take long without steps.
bool Pauses(const std::string& phase) {
  return phase == "checkpoint" || phase == "evaluation" || phase == "compile" ||
         phase == "forming";
}

bool HasLeft(const RankProgress& page) { return page.phase == "finished"; }

}  // namespace

RankSigns::RankSigns(const SignOptions& options, MonoTime now)
    : options_(options),
      watch_(Limits(), now),
      scanner_(options.progress_pattern),
      log_offset_(shim::LogEnd(options.log_path)) {}

SignLimits RankSigns::Limits() const {
  SignLimits limits;
  limits.stall_after = options_.stall_after;
  limits.grace = options_.first_sign;
  return limits;
}

void RankSigns::TakePage(const RankProgress& page, MonoTime changed,
                         MonoTime now) {
  const MonoTime since = std::exchange(read_, now);
  const RankProgress before = std::exchange(page_, page);
  if (page.phase.empty()) return;
  if (HasLeft(page)) {
    // What the rank does after the process that joined is not known yet.
    if (!HasLeft(before)) watch_ = ProgressWatch(Limits(), now);
    return;
  }
  watch_.SetSays(page.phase != "other");
  const bool joined = watch_.Signs(now).source == SignSource::kSession;
  // It changed after the page was read before.
  const MonoTime at = std::clamp(changed, std::min(since, now), now);
  if (!before.phase.empty() && !HasLeft(before) && MadeSteps(before, page)) {
    watch_.TakeSign(SignSource::kSession, at);
  } else if (joined && Pauses(page.phase)) {
    watch_.TakePause(now);
  } else if (joined && page.phase != before.phase) {
    watch_.TakeSign(SignSource::kSession, at);
  }
}

void RankSigns::TakeActivity(const ActivitySample& sample, MonoTime now) {
  if (activity_.Take(sample, now)) {
    watch_.TakeSign(SignSource::kActivity, now);
  }
}

void RankSigns::ReadLog(MonoTime now) {
  const uint64_t end = shim::LogEnd(options_.log_path);
  if (end <= log_offset_) return;
  const bool skips = end - log_offset_ > kMostLog;
  if (skips) log_offset_ = end - kMostLog;
  const auto chunk = shim::ReadLog(options_.log_path, log_offset_, kMostLog);
  if (!chunk.ok()) return;
  log_offset_ = chunk->next_offset;
  std::string_view bytes = chunk->bytes;
  bool shows = false;
  while (!bytes.empty()) {
    const size_t size = std::min(bytes.find('\n'), bytes.size());
    cri::LogLine line;
    std::string error;
    // The first may be a part of a line.
    if (cri::ParseLogLine(bytes.substr(0, size), &line, &error)) {
      shows = scanner_.Take(line.text) || shows;
    }
    bytes.remove_prefix(std::min(size + 1, bytes.size()));
  }
  if (shows) watch_.TakeSign(SignSource::kLog, now);
}

ProgressSigns RankSigns::Signs(MonoTime now) const {
  ProgressSigns signs = watch_.Signs(now);
  signs.log_step = scanner_.step();
  signs.log_total = scanner_.total();
  return signs;
}

}  // namespace lockstep::worker::agent
