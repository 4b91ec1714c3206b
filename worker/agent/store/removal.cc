#include "worker/agent/store/removal.h"

#include <utility>

#include "common/base/logging.h"

namespace lockstep::worker::agent {

void Removal::RemoveLater(const std::string& directory) {
  const auto aside = store_->SetAside(directory);
  if (aside.ok()) return RemoveAside(*aside);
  if (aside.status().code() != StatusCode::kNotFound) {
    LOG_WARN("{}", Message(aside.status()));
  }
}

void Removal::RemoveAside(const std::string& directory,
                          std::function<void()> done) {
  thread_.Add([this, directory, done = std::move(done)] {
    if (const Status removed = files_->RemoveAll(directory); !removed.ok()) {
      LOG_WARN("{}: the worker retries at its next start", Message(removed));
    }
    if (done) loop_->Post(done);
  });
}

}  // namespace lockstep::worker::agent
