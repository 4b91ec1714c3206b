// Finds in the coordinator's state what people are to be told. Pure.
//
// It looks at the times of events, so that nothing is lost while the
// coordinator restarts, and nothing that was told is told again.
#ifndef LOCKSTEP_SERVER_NOTIFY_NOTIFICATION_RULES_H_
#define LOCKSTEP_SERVER_NOTIFY_NOTIFICATION_RULES_H_

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "server/coordinator/snapshot.h"
#include "server/notify/notification.h"

namespace lockstep::server {

class NotificationRules {
 public:
  // What evidence says about a stall is awaited for this long.
  static constexpr Duration kVerdictTime = std::chrono::seconds(15);

  // `url` is the address of the status page, without a slash at its end; empty:
  // no links.
  NotificationRules(std::string cluster, std::string url)
      : cluster_(std::move(cluster)), url_(std::move(url)) {}

  // As in the constructor, from the next view on.
  void SetUrl(std::string url) { url_ = std::move(url); }

  // What happened after `since`, oldest first. Views must be passed in time
  // order.
  std::vector<Notification> Since(WallTime since, const CoordinatorView& view);

 private:
  struct Stall {
    WallTime seen{};
    bool told = false;
  };
  Notification OfJob(NotificationKind kind, const JobSnapshot& snapshot,
                     WallTime time, Reason reason, std::string text) const;
  Notification OfNode(NotificationKind kind, const NodeName& node,
                      const Event& event) const;
  void AddJob(const JobSnapshot& snapshot, WallTime since,
              std::vector<Notification>* out) const;
  void AddStall(const JobSnapshot& snapshot, WallTime now,
                std::vector<Notification>* out);
  void AddNode(const NodeSnapshot& snapshot, WallTime since,
               std::vector<Notification>* out) const;

  const std::string cluster_;
  std::string url_;
  // By the uid of a job that stands still.
  std::map<std::string, Stall> stalls_;
};

}  // namespace lockstep::server

#endif  // LOCKSTEP_SERVER_NOTIFY_NOTIFICATION_RULES_H_
