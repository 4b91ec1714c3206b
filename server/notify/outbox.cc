#include "server/notify/outbox.h"

#include <algorithm>
#include <utility>

#include "common/base/logging.h"

namespace lockstep::server {
namespace {

constexpr uint64_t kMaxNotification = 256 << 10;

}  // namespace

Outbox::Outbox(FileSystem* files, std::string dir, const OutboxLimits& limits)
    : files_(files), dir_(std::move(dir)), limits_(limits) {}

std::string Outbox::NameOf(const Notification& notification) {
  return fmt::format("{:020}.{}", ToUnixNanos(notification.time),
                     notification.id);
}

Status Outbox::Load() {
  LOCKSTEP_RETURN_IF_ERROR(files_->MakeDirs(dir_, 0700));
  LOCKSTEP_ASSIGN_OR_RETURN(const auto names, files_->List(dir_));
  for (const std::string& name : names) {
    const std::string path = JoinPath(dir_, name);
    auto text = files_->Read(path, kMaxNotification);
    auto notification = text.ok() ? NotificationOf(*text)
                                  : StatusOr<Notification>(text.status());
    if (!notification.ok() || NameOf(*notification) != name) {
      // A temporary file of a write that a crash cut off, or damage.
      LOG_WARN("{} is no notification and is left there", path);
      continue;
    }
    waiting_.emplace(name, *std::move(notification));
  }
  return OkStatus();
}

StatusOr<size_t> Outbox::Add(const Notification& notification) {
  const std::string name = NameOf(notification);
  if (waiting_.contains(name)) return size_t{0};
  LOCKSTEP_RETURN_IF_ERROR(files_->WriteAtomic(
      JoinPath(dir_, name), ToJson(notification) + "\n", 0600));
  waiting_.emplace(name, notification);
  size_t dropped = 0;
  while (waiting_.size() > limits_.count) {
    const Notification oldest = waiting_.begin()->second;
    Remove(oldest);
    ++dropped;
  }
  return dropped;
}

std::optional<Notification> Outbox::Next(Time now, size_t* dropped) {
  while (!waiting_.empty() &&
         now.wall - waiting_.begin()->second.time > limits_.age) {
    const Notification oldest = waiting_.begin()->second;
    Remove(oldest);
    ++*dropped;
  }
  if (waiting_.empty() || (not_before_ && now.mono < *not_before_)) {
    return std::nullopt;
  }
  return waiting_.begin()->second;
}

void Outbox::Remove(const Notification& notification) {
  const std::string name = NameOf(notification);
  if (waiting_.erase(name) == 0) return;
  failures_ = 0;
  not_before_.reset();
  if (const Status removed = files_->Remove(JoinPath(dir_, name));
      !removed.ok()) {
    LOG_WARN("a notification may be sent again: {}", Message(removed));
  }
}

void Outbox::Failed(MonoTime now) {
  Duration wait = limits_.first_wait;
  for (int i = 0; i < failures_ && wait < limits_.longest_wait; ++i) wait *= 2;
  ++failures_;
  not_before_ = now + std::min(wait, limits_.longest_wait);
}

void Outbox::TryAtOnce() {
  failures_ = 0;
  not_before_.reset();
}

std::optional<WallTime> Outbox::oldest() const {
  if (waiting_.empty()) return std::nullopt;
  return waiting_.begin()->second.time;
}

}  // namespace lockstep::server
