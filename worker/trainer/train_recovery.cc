// Goes on in place after the loss of a rank.
#include <fmt/format.h>

#include <charconv>
#include <string>
#include <string_view>
#include <utility>

#include "worker/trainer/train_loop.h"

namespace lockstep::worker::trainer {
namespace {

// What goes to the other ranks besides the tensors.
struct SmallState {
  int64_t start_step = 0;
  int64_t complete_step = -1;  // Saver's.
  TrainProgress progress;
};

// "120 240 {...}".
std::string Encode(const SmallState& state) {
  return fmt::format("{} {} {}", state.start_step, state.complete_step,
                     EncodeTrainProgress(state.progress));
}

StatusOr<SmallState> Decode(std::string_view text) {
  SmallState state;
  for (int64_t* number : {&state.start_step, &state.complete_step}) {
    const char* const end = text.data() + text.size();
    const auto [at, error] = std::from_chars(text.data(), end, *number);
    if (error != std::errc() || at == end || *at != ' ') {
      return DataLoss("the state of a peer is invalid");
    }
    text.remove_prefix(static_cast<size_t>(at - text.data()) + 1);
  }
  LOCKSTEP_ASSIGN_OR_RETURN(state.progress, DecodeTrainProgress(text));
  return state;
}

int ChiefOf(const runtime::Session& session) {
  return runtime::MembershipOf(session).members.front();
}

// How many ranks an elastic job has, where some are away.
std::string Size(const runtime::Session& session) {
  const auto world = static_cast<size_t>(session.world_size());
  if (runtime::MembershipOf(session).members.size() == world) return "";
  return fmt::format("; {} of {} ranks train",
                     runtime::MembershipOf(session).members.size(), world);
}

}  // namespace

Status TrainLoop::Recover(const Status& lost) {
  const int chief = ChiefOf(*session_);
  runtime::ReplicaState replica;
  for (const checkpoint::TensorView& tensor :
       StateTensors(*model_->replica(), model_->optimizer())) {
    // Views are const because checkpoints only read.
    replica.memory.push_back(
        {static_cast<std::byte*>(const_cast<void*>(tensor.data)),
         tensor.bytes});
  }
  SmallState small;
  // Another chief may have been lost before it published.
  replica.save = [&] {
    const bool same = ChiefOf(*session_) == chief;
    return Encode({restored_.progress.step, same ? saver_->complete_step() : -1,
                   progress_});
  };
  replica.load = [&](std::string_view text) -> Status {
    LOCKSTEP_ASSIGN_OR_RETURN(small, Decode(text));
    return OkStatus();
  };
  LOCKSTEP_ASSIGN_OR_RETURN(
      const runtime::Recovered recovered,
      runtime::Recover(session_, lost, reducer_.get(), replica));
  // A new chief may not know what the one before it has published.
  if (recovered.chief_received) small.complete_step = -1;
  restored_.progress.step = small.start_step;
  progress_ = small.progress;
  orders_ = recovered.orders;
  if (saver_ == nullptr) {
    LOCKSTEP_RETURN_IF_ERROR(Connect());
  } else {
    LOCKSTEP_RETURN_IF_ERROR(StartInput());
  }
  if (recovered.became_chief) ReportAsChief();
  reducer_->ZeroGradients();
  logger_->Print(fmt::format("recovery {}: step {} is next, after {}{}",
                             recovered.recovery, recovered.step + 1,
                             FormatDuration(recovered.time), Size(*session_)));
  logger_->Resume(MonotonicNow());
  return saver_->Resume(orders_, small.complete_step,
                        [this] { return Save(); });
}

}  // namespace lockstep::worker::trainer
