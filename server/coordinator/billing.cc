#include "server/coordinator/billing.h"

#include <string>

namespace lockstep::server {

Bill Billing::BillOf(const Job& job, WallTime now) const {
  return BillAt(job, prices_, now,
                [this](const NodeName& node, int32_t index) -> std::string {
                  const Member* const member = members_->Find(node);
                  if (member == nullptr) return "";
                  for (const Gpu& gpu : member->info.gpus) {
                    if (gpu.index == index) return gpu.model;
                  }
                  return "";
                });
}

}  // namespace lockstep::server
