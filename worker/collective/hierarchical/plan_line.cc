#include "worker/collective/hierarchical/plan_line.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "common/base/hash.h"

namespace lockstep::worker::collective::hierarchical {
namespace {

constexpr size_t kMostText = 2048;
constexpr std::string_view kBetween = " between ";

// "hierarchical ranks=8 hosts=2x4".
std::string Head(const std::vector<int>& hosts) {
  return fmt::format("hierarchical ranks={} hosts={}", hosts.size(),
                     GroupingText(hosts));
}

}  // namespace

std::string HostRuns(const std::vector<int>& hosts) {
  std::string text;
  for (size_t i = 0; i < hosts.size();) {
    size_t end = i;
    while (end < hosts.size() && hosts[end] == hosts[i]) ++end;
    if (!text.empty()) text += ',';
    text += fmt::format("{}", hosts[i]);
    if (end - i > 1) text += fmt::format("*{}", end - i);
    i = end;
  }
  return text;
}

std::string GroupingText(const std::vector<int>& hosts) {
  if (hosts.empty()) return "";
  const size_t each = std::count(hosts.begin(), hosts.end(), hosts[0]);
  bool regular = hosts.size() % each == 0;
  for (size_t i = 0; regular && i < hosts.size(); ++i) {
    regular = hosts[i] == static_cast<int>(i / each);
  }
  if (regular) return fmt::format("{}x{}", hosts.size() / each, each);
  const std::string runs = HostRuns(hosts);
  return runs.size() <= kMostText ? runs
                                  : fmt::format("hash:{:016x}", Fnv1a(runs));
}

std::string HierarchicalPlanLine(const std::vector<int>& hosts,
                                 std::string_view between) {
  std::string line = Head(hosts);
  if (!between.empty()) line.append(kBetween).append(between);
  return line;
}

StatusOr<std::string> BetweenPlanOf(std::string_view line,
                                    const std::vector<int>& hosts) {
  const size_t end = line.find(kBetween);
  const std::string_view head = line.substr(0, end);
  const std::string ours = Head(hosts);
  if (head != ours) {
    return InvalidArgument(
        "the reduction plan is for \"{}\", and these ranks are \"{}\"",
        head.substr(0, kMostText), ours);
  }
  if (end == std::string_view::npos) return std::string();
  return std::string(line.substr(end + kBetween.size()));
}

}  // namespace lockstep::worker::collective::hierarchical
