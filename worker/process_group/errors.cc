#include "worker/process_group/errors.h"

#include <utility>

#include "worker/collective/lost_peers.h"

namespace lockstep::worker::process_group {

Status During(const Status& status, std::string_view doing) {
  const std::string text = Message(status);
  if (status.ok() || absl::IsAborted(status) ||
      text.find(doing) != std::string::npos) {
    return status;
  }
  Status more = collective::WithLostPeers(
      Status(status.code(), fmt::format("{}, during {}", text, doing)),
      collective::LostPeersOf(status));
  const std::string reason = ReasonOf(status);
  return reason.empty() ? more : WithReason(std::move(more), reason);
}

std::string WithoutLabel(std::string_view text, std::string_view label) {
  if (text.starts_with(label) && text.substr(label.size()).starts_with(": ")) {
    text.remove_prefix(label.size() + 2);
  }
  return std::string(text);
}

}  // namespace lockstep::worker::process_group
