#include "server/coordinator/billing.h"

#include <string>

namespace lockstep::server {

Bill Billing::BillOf(const Job& job, Time now) const {
  return BillAt(
      job, prices_, now.wall,
      [this](const NodeName& node, int32_t index) -> std::string {
        const Member* const member = members_->Find(node);
        if (member == nullptr) return "";
        for (const Gpu& gpu : member->info.gpus) {
          if (gpu.index == index) return gpu.model;
        }
        return "";
      },
      [this, now](const NodeName& node) {
        const Member* const member = members_->Find(node);
        if (member == nullptr || member->state == NodeState::kReady) {
          return now.wall;
        }
        return now.wall - member->SinceEvidence(now.mono);
      });
}

}  // namespace lockstep::server
