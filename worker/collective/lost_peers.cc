#include "worker/collective/lost_peers.h"

#include <charconv>
#include <string>
#include <string_view>

#include "absl/strings/cord.h"

namespace lockstep::worker::collective {
namespace {

constexpr char kUrl[] = "lockstep/lost-peers";

}  // namespace

Status WithLostPeers(Status status, const std::vector<int>& ranks) {
  status.ErasePayload(kUrl);
  if (ranks.empty()) return status;
  std::string text;
  for (const int rank : ranks) {
    text += fmt::format("{}{}", text.empty() ? "" : ",", rank);
  }
  status.SetPayload(kUrl, absl::Cord(text));
  return status;
}

std::vector<int> LostPeersOf(const Status& status) {
  std::vector<int> ranks;
  const auto payload = status.GetPayload(kUrl);
  if (!payload.has_value()) return ranks;
  const std::string text(*payload);
  const char* at = text.data();
  const char* const end = at + text.size();
  while (at < end) {
    int rank = 0;
    const auto [next, error] = std::from_chars(at, end, rank);
    if (error != std::errc()) break;
    ranks.push_back(rank);
    at = next < end ? next + 1 : end;  // behind the comma
  }
  return ranks;
}

}  // namespace lockstep::worker::collective
