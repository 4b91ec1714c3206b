// Finds the container engine on a thread of its own.
#ifndef LOCKSTEP_WORKER_CONTAINER_ENGINE_SEARCH_H_
#define LOCKSTEP_WORKER_CONTAINER_ENGINE_SEARCH_H_

#include <functional>
#include <memory>
#include <optional>

#include "common/base/clock.h"
#include "common/base/status.h"
#include "worker/container/find_engine.h"

namespace lockstep::worker::container {

class EngineSearch {
 public:
  using Result = StatusOr<std::unique_ptr<ContainerEngine>>;

  // Begins immediately and stops after `limit`. `late` gets a result that
  // arrives after Take, on the search's thread, but not after the destruction
  // of this object.
  EngineSearch(EngineOptions options, Duration limit,
               std::function<void(Result)> late);
  // Does not wait for a hanging engine.
  ~EngineSearch();
  EngineSearch(const EngineSearch&) = delete;
  EngineSearch& operator=(const EngineSearch&) = delete;

  // Returns the result if it comes within `wait`; otherwise `late` gets it.
  // Call it once.
  std::optional<Result> Take(Duration wait);

 private:
  struct State;
  const std::shared_ptr<State> state_;
};

}  // namespace lockstep::worker::container

#endif  // LOCKSTEP_WORKER_CONTAINER_ENGINE_SEARCH_H_
