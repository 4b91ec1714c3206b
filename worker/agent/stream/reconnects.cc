#include "worker/agent/stream/reconnects.h"

#include <algorithm>

#include "common/base/logging.h"
#include "common/base/random.h"

namespace lockstep::worker::agent {

void Reconnects::OnConnected() {
  wait_ = Duration{};
  last_complaint_.clear();
}

Duration Reconnects::OnClosed(const Status& status) {
  const std::string complaint =
      status.ok() ? "the coordinator closed the stream" : status.ToString();
  if (complaint != last_complaint_) {
    LOG_WARN("not connected to the coordinator: {}", complaint);
    last_complaint_ = complaint;
    if (status.code() == StatusCode::kUnavailable && check_dates_) {
      // Not here: it may wait for a host that does not answer.
      if (thread_ == nullptr) thread_ = std::make_unique<WorkThread>();
      thread_->Add([this, status] {
        const Status dates = check_dates_(status);
        if (!dates.ok()) LOG_ERROR("{}", Message(dates));
      });
    }
  }
  wait_ = wait_ == Duration{} ? first_ : std::min(wait_ * 2, most_);
  // Between half and the whole: many daemons must not come at one time.
  return wait_ / 2 +
         Duration(static_cast<int64_t>(
             RandomUint64() % static_cast<uint64_t>(wait_.count() / 2 + 1)));
}

}  // namespace lockstep::worker::agent
