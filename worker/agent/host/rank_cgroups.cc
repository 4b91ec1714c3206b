#include "worker/agent/host/rank_cgroups.h"

namespace lockstep::worker::agent {

StatusOr<std::string> RankCgroups::Make(const std::string& id,
                                        const Resources& share) {
  return tree_->Make(id, share);
}

std::optional<std::string> RankCgroups::Find(const std::string& id) const {
  if (tree_ == nullptr || !tree_->Exists(id)) return std::nullopt;
  return tree_->PathOf(id);
}

std::optional<CgroupReading> RankCgroups::Read(const std::string& id) {
  if (tree_ == nullptr || id.empty()) return std::nullopt;
  return tree_->Read(id);
}

void RankCgroups::Drop(const std::string& id) {
  if (tree_ == nullptr || id.empty()) return;
  (void)tree_->Kill(id);
  // The dead leave it a moment later.
  if (!tree_->Remove(id).ok()) dropped_.insert(id);
}

void RankCgroups::RemoveDropped() {
  std::erase_if(dropped_, [this](const std::string& id) {
    return tree_->Remove(id).ok();
  });
}

}  // namespace lockstep::worker::agent
