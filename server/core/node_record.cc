#include "server/core/node_record.h"

#include <fmt/format.h>

#include "server/core/job.h"

namespace lockstep {

std::string Describe(const Drain& drain) {
  std::string text = "drained by " + drain.requester;
  if (!drain.reason.empty()) text += ": " + drain.reason;
  return text;
}

void AddEvent(NodeRecord* node, Reason reason, std::string message,
              WallTime now) {
  Event event;
  event.time = now;
  event.reason = reason;
  event.message = Shorten(std::move(message));
  node->events.push_back(std::move(event));
  if (node->events.size() > kMaxNodeEvents) {
    node->events.erase(node->events.begin(),
                       node->events.end() - kMaxNodeEvents);
  }
}

NodeRecord DrainNode(const NodeRecord& before, Drain drain) {
  NodeRecord node = before;
  AddEvent(&node, Reason::kNodeDrain,
           fmt::format("{}; its jobs {}", Describe(drain),
                       drain.grace ? fmt::format("are moved away within {}",
                                                 FormatDuration(*drain.grace))
                                   : "run to their end"),
           drain.time);
  node.state_time = drain.time;
  node.drain = std::move(drain);
  return node;
}

NodeRecord UndrainNode(const NodeRecord& before, bool quarantined,
                       const std::string& requester, WallTime now) {
  NodeRecord node = before;
  if (!node.drain && !quarantined) return node;
  const char* const what = !quarantined ? "undrained"
                           : node.drain ? "undrained, and quarantine ended,"
                                        : "quarantine ended";
  node.drain.reset();
  node.state_time = now;
  AddEvent(&node, Reason::kNodeUndrain,
           fmt::format("{} by {}: takes work again", what, requester), now);
  return node;
}

}  // namespace lockstep
