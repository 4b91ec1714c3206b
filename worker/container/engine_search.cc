#include "worker/container/engine_search.h"

#include <thread>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "common/base/mutex.h"

namespace lockstep::worker::container {

struct EngineSearch::State {
  Mutex mu;
  CondVar changed;
  std::optional<Result> result ABSL_GUARDED_BY(mu);
  bool too_late ABSL_GUARDED_BY(mu) = false;  // Take is over.
  std::function<void(Result)> late ABSL_GUARDED_BY(mu);
};

EngineSearch::EngineSearch(EngineOptions options, Duration limit,
                           std::function<void(Result)> late)
    : state_(std::make_shared<State>()) {
  {
    MutexLock lock(&state_->mu);
    state_->late = std::move(late);
  }
  std::thread([state = state_, options = std::move(options), limit] {
    auto result = FindContainerEngine(options, MonotonicNow() + limit);
    MutexLock lock(&state->mu);
    if (!state->too_late) {
      state->result = std::move(result);
      state->changed.NotifyAll();
    } else if (state->late) {
      state->late(std::move(result));
    }
  }).detach();
}

EngineSearch::~EngineSearch() {
  MutexLock lock(&state_->mu);
  state_->late = nullptr;
}

std::optional<EngineSearch::Result> EngineSearch::Take(Duration wait) {
  const MonoTime until = MonotonicNow() + wait;
  MutexLock lock(&state_->mu);
  while (!state_->result && MonotonicNow() < until) {
    (void)state_->changed.WaitUntil(&state_->mu, until);
  }
  state_->too_late = true;
  return std::exchange(state_->result, std::nullopt);
}

}  // namespace lockstep::worker::container
