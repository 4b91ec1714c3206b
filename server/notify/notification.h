// What people are told: about a job, a node or a GPU, in one sentence.
#ifndef LOCKSTEP_SERVER_NOTIFY_NOTIFICATION_H_
#define LOCKSTEP_SERVER_NOTIFY_NOTIFICATION_H_

#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "common/base/clock.h"
#include "common/base/status.h"
#include "common/model/job.h"

namespace lockstep::server {

enum class NotificationKind {
  kStarted,
  kStalled,
  kRestarted,
  kFailed,
  kFinished,
  kCancelled,
  kIdle,
  kNodeFault,
  kNodeBack,
  kGpuFault,
  kTest,
};
// "started", "node-fault".
std::string_view Name(NotificationKind kind);
std::optional<NotificationKind> NotificationKindOf(std::string_view name);
// "started, stalled, ..." without kTest.
std::string NotificationKindNames();

struct Notification {
  // The same for the same occurrence, also after a restart of the coordinator:
  // receivers may drop what they have.
  std::string id;
  WallTime time{};
  NotificationKind kind = NotificationKind::kTest;
  std::string cluster;
  // Empty for a node's fault.
  JobName job;
  std::string owner;
  std::map<std::string, std::string> labels;
  // Empty for a job's occurrence that is about no node.
  NodeName node;
  // NONE, STALLED, NODE_SILENT, ...
  std::string reason;
  // What happened: the verdict.
  std::string text;
  // Of the job so far: "3.20 USD".
  std::string cost;
  // The page of the job or node; empty if the site gave no address.
  std::string url;
  // The command that says more.
  std::string command;

  bool operator==(const Notification&) const = default;
};

// "job fashion failed", "node host-b has a fault".
std::string TitleOf(const Notification& notification);

// One line of JSON, for files and webhooks.
std::string ToJson(const Notification& notification);
// DataLoss: `json` is not what ToJson returned.
StatusOr<Notification> NotificationOf(const std::string& json);

// The text for people unless a receiver has a template of its own.
inline constexpr std::string_view kDefaultText =
    "{title}\n{text}\nOwner: {owner}. Cost so far: {cost}.\n{command}\n{url}";
// InvalidArgument names a placeholder that does not exist, and those that do.
Status CheckTemplate(std::string_view text);
// Replaces {title}, {text}, {job} and the other fields. Lines of which all
// placeholders are empty are left out. REQUIRES: CheckTemplate(text).
std::string Render(std::string_view text, const Notification& notification);

}  // namespace lockstep::server

#endif  // LOCKSTEP_SERVER_NOTIFY_NOTIFICATION_H_
