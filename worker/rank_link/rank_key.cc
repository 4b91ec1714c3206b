#include "worker/rank_link/rank_key.h"

#include <fmt/format.h>

namespace lockstep::worker::rank_link {

std::string Describe(const RankKey& key) {
  return fmt::format("job {} g{} rank {}", key.job, key.generation, key.rank);
}

}  // namespace lockstep::worker::rank_link
