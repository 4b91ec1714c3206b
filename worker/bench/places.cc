#include "worker/bench/places.h"

#include <unistd.h>

#include <cstring>
#include <nlohmann/json.hpp>

namespace lockstep {
namespace {

// What a rank tells of itself; longer names are cut.
struct Told {
  int64_t pid;
  char host[120];
};
static_assert(sizeof(Told) == 128);

Told Mine() {
  Told told{};
  told.pid = getpid();
  gethostname(told.host, sizeof(told.host) - 1);
  return told;
}

}  // namespace

StatusOr<std::vector<RankPlace>> GatherPlaces(Communicator* communicator,
                                              const BenchOptions& options) {
  const auto ranks = static_cast<size_t>(communicator->size());
  LOCKSTEP_ASSIGN_OR_RETURN(const Buffer* all,
                            communicator->Allocate(ranks * sizeof(Told)));
  auto* const told = static_cast<Told*>(all->data);
  told[communicator->rank()] = Mine();
  LOCKSTEP_RETURN_IF_ERROR(
      Run(communicator,
          {.kind = CollectiveKind::kAllGather,
           .slice = {all, 0, ranks * sizeof(Told) / sizeof(int64_t),
                     DataType::kInt64}},
          options.timeout));
  std::vector<RankPlace> places;
  for (size_t rank = 0; rank < ranks; ++rank) {
    Told one;
    std::memcpy(&one, &told[rank], sizeof(one));
    one.host[sizeof(one.host) - 1] = '\0';
    places.push_back({one.pid, one.host});
  }
  return places;
}

nlohmann::json PlacesJson(const std::vector<RankPlace>& places) {
  nlohmann::json json = nlohmann::json::array();
  for (size_t rank = 0; rank < places.size(); ++rank) {
    const RankPlace& place = places[rank];
    json.push_back({{"rank", rank}, {"pid", place.pid}, {"host", place.host}});
  }
  return json;
}

}  // namespace lockstep
