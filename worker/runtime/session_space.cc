// Waiting for space on the disk of the output directory.
#include <cerrno>
#include <cstring>
#include <string>
#include <thread>

#include "worker/runtime/session_impl.h"

namespace lockstep::worker::runtime {
namespace {

using std::chrono::seconds;

constexpr Duration kLongestWait = seconds(30);
// An order to end is noticed after so long.
constexpr Duration kTurn = std::chrono::milliseconds(500);

bool IsNoSpace(const Status& status) {
  if (status.code() != StatusCode::kResourceExhausted) return false;
  const std::string message = Message(status);
  return message.find(std::strerror(ENOSPC)) != std::string::npos ||
         message.find(std::strerror(EDQUOT)) != std::string::npos;
}

}  // namespace

StatusOr<bool> Session::Impl::AwaitSpace(const Status& mine) {
  LOCKSTEP_ASSIGN_OR_RETURN(SmallCollectives * all, collectives());
  double lacking = IsNoSpace(mine) ? 1 : 0;
  LOCKSTEP_RETURN_IF_ERROR(all->AllReduceSum({&lacking, 1}));
  if (lacking == 0) {
    space_waits_ = 0;
    return false;
  }
  if (IsNoSpace(mine) && space_waits_ == 0) {
    SendEvent(
        fmt::format(
            "the output directory has no space for the final state: retrying "
            "until there is space; until then only the ranks hold it: {}",
            Message(mine)),
        EventKind::kOutputFull);
  }
  Duration wait = seconds(1);
  for (int i = 0; i < space_waits_ && wait < kLongestWait; ++i) wait *= 2;
  wait = std::min(wait, kLongestWait);
  ++space_waits_;
  progress_->Enter(Phase::kCheckpoint);
  // By turns: the collective fails when the generation is ended, and ranks that
  // sleep a little longer are waited for.
  for (Duration slept{}; slept < wait; slept += kTurn) {
    std::this_thread::sleep_for(kTurn);
    progress_->Publish();
    LOCKSTEP_RETURN_IF_ERROR(all->Barrier());
  }
  progress_->Enter(Phase::kOther);
  return true;
}

}  // namespace lockstep::worker::runtime
