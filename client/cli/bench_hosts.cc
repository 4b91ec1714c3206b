#include "client/cli/bench_hosts.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "client/cli/text.h"

namespace lockstep::cli {
namespace {

constexpr size_t kNamed = 6;

// "a, b and 3 more".
std::string List(const std::vector<std::string>& names) {
  const size_t shown = std::min(names.size(), kNamed);
  std::string text = fmt::format(
      "{}",
      fmt::join(names.begin(),
                names.begin() + static_cast<std::ptrdiff_t>(shown), ", "));
  if (names.size() > shown) {
    text += fmt::format(" and {} more", names.size() - shown);
  }
  return text;
}

// "DRAINED".
std::string StateOf(const v1::Node& node) {
  if (node.state() == v1::NODE_STATE_READY) return "drained soon";
  constexpr std::string_view kPrefix = "NODE_STATE_";
  const std::string name = v1::NodeState_Name(node.state());
  return name.starts_with(kPrefix) ? name.substr(kPrefix.size()) : name;
}

Status TooFew(int hosts, const std::string& pool,
              const std::vector<const v1::Node*>& ready,
              const std::vector<std::string>& others) {
  std::vector<std::string> names;
  for (const v1::Node* node : ready) names.push_back(Printable(node->name()));
  std::string text =
      fmt::format("--hosts {}: {} host{} of {} take{} work", hosts,
                  ready.size(), ready.size() == 1 ? "" : "s",
                  pool.empty() ? "the cluster"
                               : fmt::format("pool \"{}\"", Printable(pool)),
                  ready.size() == 1 ? "s" : "");
  if (!names.empty()) text += ": " + List(names);
  if (!others.empty()) text += "; not: " + List(others);
  return WithReason(FailedPrecondition("{}", text), "NEVER_FITS");
}

}  // namespace

StatusOr<BenchHosts> ChooseBenchHosts(const std::vector<v1::Node>& nodes,
                                      int hosts, const std::string& pool) {
  std::vector<const v1::Node*> ready;
  std::vector<std::string> others;
  for (const v1::Node& node : nodes) {
    if (!pool.empty() && node.pool() != pool) continue;
    if (node.state() == v1::NODE_STATE_READY && !node.has_drain()) {
      ready.push_back(&node);
    } else {
      others.push_back(
          fmt::format("{} ({})", Printable(node.name()), StateOf(node)));
    }
  }
  if (ready.size() < static_cast<size_t>(hosts)) {
    return TooFew(hosts, pool, ready, others);
  }
  std::stable_sort(ready.begin(), ready.end(),
                   [](const v1::Node* a, const v1::Node* b) {
                     return a->capacity().cpus() > b->capacity().cpus();
                   });
  BenchHosts chosen;
  const v1::Node& smallest = *ready[static_cast<size_t>(hosts) - 1];
  chosen.cpus = smallest.capacity().cpus();
  const v1::Node& largest = *ready.front();
  if (hosts > 1 && 2 * chosen.cpus <= largest.capacity().cpus()) {
    chosen.note = fmt::format(
        "{} has room for two tasks of {:g} cores, the size of {}: both "
        "may run there; --cpus requests more",
        Printable(largest.name()), chosen.cpus, Printable(smallest.name()));
  }
  return chosen;
}

}  // namespace lockstep::cli
