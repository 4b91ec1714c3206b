#include "worker/agent/core/gang_key.h"

#include <fmt/format.h>

namespace lockstep::worker::agent {

std::string Describe(const GangKey& key) {
  return fmt::format("job {} g{}", key.job, key.generation);
}

std::string Describe(const RankRef& ref) {
  return fmt::format("{} rank {}", Describe(ref.gang), ref.rank);
}

}  // namespace lockstep::worker::agent
