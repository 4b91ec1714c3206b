#include "server/core/silence.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "common/model/limits.h"
#include "server/core/node_record.h"

namespace lockstep::server {
namespace {

using std::chrono_literals::operator""s;

constexpr Duration kLeastMargin = 5s;
constexpr Duration kMostMargin = 60s;
// Beyond the fence: for clocks that differ.
constexpr Duration kQuietMargin = 1s;

Outlook Waits(std::string why) {
  Outlook outlook;
  outlook.why = std::move(why);
  return outlook;
}

Outlook Moves(const Fence& fence, const Silence& silence, Duration lost_after) {
  Outlook outlook;
  outlook.kind = Outlook::Kind::kMoves;
  outlook.ends = silence.since + fence.after;
  outlook.moves = silence.since + lost_after;
  return outlook;
}

Outlook Lost() {
  Outlook outlook;
  outlook.kind = Outlook::Kind::kLost;
  return outlook;
}

// Why the answers of its neighbours do not show that the ranks have ended.
std::string Doubt(const Fence& fence, const Silence& silence) {
  if (!silence.all_asked) return "not all other nodes have answered";
  const Attestation::Finding& finding = *silence.finding;
  if (finding.quiet >= fence.after + kQuietMargin) return "";
  return fmt::format(
      "{} has answered it since, or cannot say, so its ranks may go on: only "
      "its way to the coordinator may be cut",
      finding.last);
}

Outlook AutoOutlook(const Fence& fence, const Silence& silence,
                    const SilenceOptions& options) {
  if (!silence.together.empty()) {
    return Waits(
        fmt::format("{} fell silent at about the same time, so they "
                    "may be cut off together and go on",
                    fmt::join(silence.together, ", ")));
  }
  if (silence.silent <= options.lost_after) {
    return Moves(fence, silence, options.lost_after);
  }
  std::string doubt = Doubt(fence, silence);
  if (doubt.empty()) return Lost();
  const bool asking =
      silence.silent <= options.lost_after + 2 * options.ask_again &&
      !silence.all_asked;
  return asking ? Moves(fence, silence, options.lost_after)
                : Waits(std::move(doubt));
}

}  // namespace

Duration MarginOf(Duration lost_after) {
  return std::clamp(lost_after / 5, kLeastMargin, kMostMargin);
}

std::optional<Fence> FenceOf(const JobSpec& spec,
                             const SilenceOptions& options) {
  if (spec.kind != JobKind::kProgram || spec.node_loss == NodeLoss::kNever) {
    return std::nullopt;
  }
  const Duration lost_after =
      spec.node_lost_timeout.value_or(options.lost_after);
  return Fence{lost_after - MarginOf(lost_after),
               !spec.node_lost_timeout.has_value()};
}

void Attestation::Begin(uint64_t id, std::set<NodeName> asked, MonoTime now,
                        const SilenceOptions& options) {
  id_ = id;
  asked_at_ = now;
  until_ = now + options.answer_timeout;
  next_ = now + options.ask_again;
  answers_.clear();
  for (const NodeName& node : asked) answers_[node] = std::nullopt;
}

void Attestation::Take(uint64_t id, const NodeName& neighbour,
                       const ProbeResult& result, MonoTime now) {
  const auto asked = answers_.find(neighbour);
  if (id != id_ || asked == answers_.end() || now > until_) return;
  asked->second = result.quiet.value_or(Duration{});
  Finding finding{asked_at_, {}, Duration::max(), {}};
  for (const auto& [node, quiet] : answers_) {
    if (!quiet) return;
    finding.asked.insert(node);
    if (*quiet >= finding.quiet) continue;
    finding.quiet = *quiet;
    finding.last = node;
  }
  finding_ = std::move(finding);
}

Outlook OutlookOf(const JobSpec& spec, const std::optional<Fence>& fence,
                  const Silence& silence, const SilenceOptions& options) {
  if (spec.node_loss == NodeLoss::kNever) {
    return Waits("the job has --node-lost-timeout never");
  }
  const bool timed = spec.node_lost_timeout.has_value();
  const Duration lost_after =
      spec.node_lost_timeout.value_or(options.lost_after);
  if (!timed && silence.neighbours == 0) {
    return Waits("no other host is connected");
  }
  // Another coordinator may have launched them, with other options.
  if (!fence || fence->after + kLeastMargin > lost_after ||
      (timed && fence->neighbours_count)) {
    return Waits(
        "its daemon has not confirmed that its ranks end by "
        "themselves: it is an older one, or fell silent before");
  }
  if (!timed) return AutoOutlook(*fence, silence, options);
  return silence.silent > lost_after ? Lost()
                                     : Moves(*fence, silence, lost_after);
}

std::string Describe(const Outlook& outlook, const Silence& silence) {
  std::string text = fmt::format("node {} is silent since {}", silence.node,
                                 ClockText(silence.since));
  switch (outlook.kind) {
    case Outlook::Kind::kMoves:
      return text + fmt::format(
                        ": its ranks end by themselves by {}, and the job "
                        "moves at {}, unless the node is back before",
                        ClockText(outlook.ends), ClockText(outlook.moves));
    case Outlook::Kind::kLost:
      return text + ": its ranks have ended by themselves, and the job moves";
    case Outlook::Kind::kWaits:
      break;
  }
  return text +
         fmt::format(
             ", and the job waits for it, because {}. If it is gone for good, "
             "an operator moves the job with `lockstep nodes forget {} --yes`",
             outlook.why, silence.node);
}

std::map<NodeName, NeighbourList> NeighboursOf(const std::vector<Listed>& all) {
  std::map<NodeName, NeighbourList> lists;
  for (size_t i = 0; i < all.size(); ++i) {
    std::set<std::string> hosts = {all[i].target.address};
    NeighbourList& list = lists[all[i].target.node];
    // Some more than are needed, as several daemons may share a host.
    for (size_t step = 1; step < all.size() && step <= 4 * kMaxNeighbours &&
                          list.targets.size() < kMaxNeighbours;
         ++step) {
      const ProbeTarget& next = all[(i + step) % all.size()].target;
      if (hosts.insert(next.address).second) list.targets.push_back(next);
    }
  }
  return lists;
}

}  // namespace lockstep::server
