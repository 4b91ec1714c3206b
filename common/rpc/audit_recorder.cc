#include "common/rpc/audit_recorder.h"

#include <utility>

namespace lockstep {
namespace {

constexpr Duration kInterval = std::chrono::seconds(1);
constexpr char kOthers[] = "others";

// True if the answer means that nothing was done. An interrupted call or an
// internal error leaves that open.
bool IsDeclined(const Status& answer) {
  switch (answer.code()) {
    case StatusCode::kInvalidArgument:
    case StatusCode::kNotFound:
    case StatusCode::kAlreadyExists:
    case StatusCode::kFailedPrecondition:
    case StatusCode::kUnimplemented:
      return true;
    default:
      return IsRefusal(answer);
  }
}

}  // namespace

AuditRecorder::AuditRecorder(AuditRecorderOptions options)
    : options_(std::move(options)) {}

Status AuditRecorder::Space() const {
  return options_.space ? options_.space() : OkStatus();
}

void AuditRecorder::Write(const AuditRecord& record, WallTime now) const {
  if (options_.log != nullptr) options_.log->Write(record, now);
  if (options_.log == nullptr || IsRefusal(record.answer)) Audit(record);
}

void AuditRecorder::Record(AuditRecord record, Time now,
                           const std::string& kind_of_method) {
  if (!IsDeclined(record.answer)) return Write(record, now.wall);
  const bool space = Space().ok();
  {
    MutexLock lock(&mu_);
    if (!space) {
      ++unrecorded_;
      return;
    }
    Key key(record.who, kind_of_method.empty() ? record.method : kind_of_method,
            record.answer.code());
    if (!kinds_.contains(key) && kinds_.size() >= options_.most_kinds) {
      std::erase_if(kinds_, [&](const auto& kind) {
        return kind.second.waiting == 0 &&
               now.mono - kind.second.last_line >= kInterval;
      });
      if (kinds_.size() >= options_.most_kinds) {
        key = Key(kOthers, kOthers, StatusCode::kUnknown);
      }
    }
    const auto [it, is_new] = kinds_.try_emplace(std::move(key));
    Kind& kind = it->second;
    ++kind.waiting;
    if (!is_new && now.mono - kind.last_line < kInterval) {
      kind.newest = std::move(record);
      return;
    }
    record.count = std::exchange(kind.waiting, 0);
    kind.last_line = now.mono;
  }
  Write(record, now.wall);
}

std::vector<AuditRecord> AuditRecorder::TakeDue(MonoTime now, bool all) {
  std::vector<AuditRecord> due;
  if (unrecorded_ > 0) {
    const int64_t count = std::exchange(unrecorded_, 0);
    AuditRecord record;
    record.who = kOthers;
    record.method = "calls";
    record.answer = ResourceExhausted(
        "{} rejected calls were not recorded because the disk was full", count);
    record.count = count;
    due.push_back(std::move(record));
  }
  for (auto& [key, kind] : kinds_) {
    if (kind.waiting == 0 || (!all && now - kind.last_line < kInterval)) {
      continue;
    }
    kind.newest.count = std::exchange(kind.waiting, 0);
    kind.last_line = now;
    due.push_back(std::move(kind.newest));
  }
  return due;
}

void AuditRecorder::Flush(Time now, bool all) {
  if (!Space().ok()) return;
  std::vector<AuditRecord> due;
  {
    MutexLock lock(&mu_);
    due = TakeDue(now.mono, all);
  }
  for (const AuditRecord& record : due) Write(record, now.wall);
}

}  // namespace lockstep
