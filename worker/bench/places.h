// Which process of which host each rank is.
#ifndef LOCKSTEP_WORKER_BENCH_PLACES_H_
#define LOCKSTEP_WORKER_BENCH_PLACES_H_

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "common/base/status.h"
#include "worker/bench/options.h"
#include "worker/collective/communicator.h"

namespace lockstep {

struct RankPlace {
  int64_t pid = 0;
  std::string host;
};

// Of all ranks, called by all of them.
StatusOr<std::vector<RankPlace>> GatherPlaces(Communicator* communicator,
                                              const BenchOptions& options);

nlohmann::json PlacesJson(const std::vector<RankPlace>& places);

}  // namespace lockstep

#endif  // LOCKSTEP_WORKER_BENCH_PLACES_H_
