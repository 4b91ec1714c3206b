#include "server/core/inquiry.h"

#include <fmt/format.h>

#include <algorithm>
#include <tuple>

namespace lockstep::server {

std::vector<NodeName> ChooseNeighbours(const std::string& pool,
                                       const std::string& address,
                                       std::vector<Neighbour> ready,
                                       size_t hosts) {
  std::erase_if(ready, [&](const Neighbour& neighbour) {
    return neighbour.address == address;
  });
  std::sort(ready.begin(), ready.end(),
            [&](const Neighbour& a, const Neighbour& b) {
              return std::tuple(a.pool != pool, a.node) <
                     std::tuple(b.pool != pool, b.node);
            });
  std::vector<NodeName> chosen;
  std::vector<std::string> addresses;
  for (const Neighbour& neighbour : ready) {
    if (chosen.size() == kAskedNeighbours) break;
    // Two daemons on one host have the same network.
    if (std::find(addresses.begin(), addresses.end(), neighbour.address) !=
        addresses.end()) {
      continue;
    }
    addresses.push_back(neighbour.address);
    chosen.push_back(neighbour.node);
  }
  // With two hosts the other cannot testify: the coordinator may run there, and
  // its own network may be broken.
  if (hosts <= kAskedNeighbours) chosen.clear();
  return chosen;
}

bool Inquiry::IsDue(MonoTime now) const { return !next_ || now >= *next_; }

void Inquiry::Begin(uint64_t id, const std::vector<NodeName>& asked,
                    MonoTime now) {
  id_ = id;
  asked_at_ = now;
  next_ = now + options_.answer_timeout;
  answers_.clear();
  for (const NodeName& node : asked) answers_[node] = std::nullopt;
}

void Inquiry::Take(uint64_t id, const NodeName& neighbour,
                   const ProbeResult& result, MonoTime now) {
  const auto asked = answers_.find(neighbour);
  if (id != id_ || asked == answers_.end() || asked->second) return;
  if (now > asked_at_ + options_.answer_timeout) return;
  asked->second = result;
  Conclude(now);
}

void Inquiry::Conclude(MonoTime now) {
  bool all = true;
  for (const auto& [node, answer] : answers_) {
    if (answer && answer->reached) {
      Find(Finding::kReached, now + options_.again_after_reached);
      return;
    }
    all = all && answer.has_value();
  }
  if (all) Find(Finding::kUnreachable, now + options_.again_after);
}

void Inquiry::Find(Finding finding, MonoTime next) {
  finding_ = finding;
  found_asked_at_ = asked_at_;
  next_ = next;
}

std::string Inquiry::Describe() const {
  std::string text;
  for (const auto& [node, answer] : answers_) {
    if (!answer) continue;
    if (!text.empty()) text += " and ";
    text += answer->error.empty() ? node
                                  : fmt::format("{} ({})", node, answer->error);
  }
  return text;
}

}  // namespace lockstep::server
