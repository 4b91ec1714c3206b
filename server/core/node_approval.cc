#include "server/core/node_approval.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace lockstep::server {
namespace {

// A daemon may list more GPUs than it counts; all listed ones are usable.
Resources Offered(const NodeInfo& info) {
  Resources offered = info.capacity;
  offered.gpus = std::max(offered.gpus, static_cast<int32_t>(info.gpus.size()));
  return offered;
}

// Returns the larger amount of each resource.
Resources Most(const Resources& a, const Resources& b) {
  return {std::max(a.cpus, b.cpus), std::max(a.memory_bytes, b.memory_bytes),
          std::max(a.gpus, b.gpus), b.gpu_type};
}

// Returns the smaller amount of each resource.
Resources Least(const Resources& a, const Resources& b) {
  return {std::min(a.cpus, b.cpus), std::min(a.memory_bytes, b.memory_bytes),
          std::min(a.gpus, b.gpus), a.gpu_type};
}

// A record from before approvals: everything the node had is approved.
Resources ApprovedOf(const NodeRecord& node) {
  if (node.approved) return *node.approved;
  Resources had = Offered(node.info);
  had.gpus += static_cast<int32_t>(node.missing_gpus.size());
  return had;
}

// Returns the usable part of `offered`.
Resources Usable(const Resources& offered, const Resources& approved) {
  Resources usable = Least(offered, approved);
  const int64_t more = offered.memory_bytes - usable.memory_bytes;
  if (static_cast<double>(more) <=
      static_cast<double>(approved.memory_bytes) * kMemoryTolerance) {
    usable.memory_bytes = offered.memory_bytes;
  }
  return usable;
}

void SortByIndex(std::vector<Gpu>* gpus) {
  std::stable_sort(gpus->begin(), gpus->end(), [](const Gpu& a, const Gpu& b) {
    return a.index < b.index;
  });
}

// Moves all but `count` of `gpus` to `withheld`. Those in `known` stay first.
void Withhold(const std::vector<Gpu>& known, size_t count,
              std::vector<Gpu>* gpus, std::vector<Gpu>* withheld) {
  if (gpus->size() <= count) return;
  std::stable_partition(gpus->begin(), gpus->end(), [&](const Gpu& gpu) {
    return std::any_of(known.begin(), known.end(),
                       [&](const Gpu& other) { return IsSameGpu(gpu, other); });
  });
  const auto rest = gpus->begin() + static_cast<std::ptrdiff_t>(count);
  withheld->assign(std::make_move_iterator(rest),
                   std::make_move_iterator(gpus->end()));
  gpus->erase(rest, gpus->end());
  SortByIndex(gpus);
  SortByIndex(withheld);
}

}  // namespace

void LimitToApproved(const NodeRecord* before, const Resources& limit,
                     NodeRecord* node, WallTime now) {
  const Resources offered = Offered(node->info);
  node->approved =
      before == nullptr ? Least(offered, limit) : ApprovedOf(*before);
  node->offered.reset();
  node->withheld_gpus.clear();
  const Resources use = Usable(offered, *node->approved);
  if (use == offered) return;
  node->offered = offered;
  NodeInfo& info = node->info;
  info.capacity = Least(info.capacity, use);
  Withhold(before == nullptr ? std::vector<Gpu>() : before->info.gpus,
           static_cast<size_t>(use.gpus), &info.gpus, &node->withheld_gpus);
  if (before != nullptr && before->offered == node->offered) return;
  AddEvent(node, Reason::kNodeGrew, WaitingForApproval(*node), now);
}

NodeRecord ApproveNode(const NodeRecord& before, const std::string& requester,
                       WallTime now) {
  NodeRecord node = before;
  if (!node.offered) return node;
  NodeInfo& info = node.info;
  const std::string had = Describe(info.capacity);
  node.approved = Most(ApprovedOf(node), *node.offered);
  info.capacity = *std::exchange(node.offered, std::nullopt);
  info.gpus.insert(info.gpus.end(), node.withheld_gpus.begin(),
                   node.withheld_gpus.end());
  node.withheld_gpus.clear();
  SortByIndex(&info.gpus);
  AddEvent(&node, Reason::kNodeApproved,
           fmt::format("approved by {}: {} may be used, before {}", requester,
                       Describe(info.capacity), had),
           now);
  return node;
}

std::string WaitingForApproval(const NodeRecord& node) {
  if (!node.offered) return "";
  return fmt::format(
      "offers {}, of which {} may be used: the rest waits for `lockstep nodes "
      "approve {}`",
      Describe(*node.offered), Describe(node.info.capacity), node.info.name);
}

}  // namespace lockstep::server
