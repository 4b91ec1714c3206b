#include "worker/collective/hierarchical/sides.h"

#include <utility>

#include "worker/collective/hierarchical/host_layout.h"
#include "worker/collective/lost_peers.h"

namespace lockstep::worker::collective::hierarchical {

Status Translate(const Status& status, const std::vector<int>& ranks,
                 int size) {
  if (status.ok() || absl::IsAborted(status)) return status;
  const Status translated(status.code(),
                          TranslateRanks(Message(status), ranks, size));
  std::vector<int> lost;
  for (const int rank : LostPeersOf(status)) {
    if (rank >= 0 && static_cast<size_t>(rank) < ranks.size()) {
      lost.push_back(ranks[rank]);
    }
  }
  const Status named = WithLostPeers(translated, lost);
  const std::string reason = ReasonOf(status);
  return reason.empty() ? named : WithReason(named, reason);
}

Sides::Sides(int size, Side within, Side between,
             std::shared_ptr<LinkedAbort> linked_abort)
    : size_(size),
      within_(std::move(within)),
      between_(std::move(between)),
      linked_abort_(std::move(linked_abort)),
      memory_(within_.communicator.get(), between_.communicator.get()) {
  linked_abort_->Attach(within_.communicator.get(),
                        between_.communicator.get());
}

Sides::~Sides() { linked_abort_->Detach(); }

StatusOr<std::unique_ptr<Work>> Sides::Start(const Side& side,
                                             const Operation& operation) {
  // What it looks the buffer up in grows when the user allocates.
  MutexLock lock(memory_.calls());
  return side.communicator->Start(operation);
}

// What RunNow does within a host, where it changes no threads; but the lock
// must not be held while it waits.
Status Sides::RunWithin(const Operation& operation, MonoTime deadline) {
  Enter(Stage::kWithin);
  const auto work = Start(within_, operation);
  const Status status = work.ok() ? (*work)->Wait(deadline) : work.status();
  return status.ok() ? status : Fail(within_, status);
}

StatusOr<std::unique_ptr<Work>> Sides::StartBetween(
    const Operation& operation) {
  auto work = Start(between_, operation);
  if (!work.ok()) return Fail(between_, work.status());
  return work;
}

Status Sides::WaitBetween(Work* work, MonoTime deadline) {
  Enter(Stage::kBetween);
  const Status status = work->Wait(deadline);
  return status.ok() ? status : Fail(between_, status);
}

Status Sides::TuneBetween(Duration budget, MonoTime deadline) {
  Enter(Stage::kBetween);
  const Status status = between_.communicator->Tune(budget, deadline);
  return status.ok() ? status : Fail(between_, status);
}

Status Sides::FollowBetween(const std::string& line, MonoTime deadline) {
  Enter(Stage::kBetween);
  const Status status = between_.communicator->FollowPlan(line, deadline);
  return status.ok() ? status : Fail(between_, status);
}

void Sides::Cut() {
  linked_abort_->Break(LinkedAbort::From::kOutside, Aborted("it was cut off"));
}

std::optional<PeerWait> Sides::CurrentWait() const {
  const auto wait_of = [](const Side& side) {
    if (side.communicator == nullptr) return std::optional<PeerWait>();
    std::optional<PeerWait> wait = side.communicator->CurrentWait();
    if (wait && wait->rank >= 0) wait->rank = side.ranks[wait->rank];
    return wait;
  };
  const Stage stage = stage_.load(std::memory_order_relaxed);
  const std::optional<PeerWait> within = wait_of(within_);
  const std::optional<PeerWait> between = wait_of(between_);
  PeerWait wait;
  // A stage of the other side may be under way, too; the thread waits for this
  // one first.
  if (stage == Stage::kWithin && within) wait = *within;
  if (stage == Stage::kBetween && between) wait = *between;
  wait.waits =
      within.value_or(PeerWait()).waits + between.value_or(PeerWait()).waits;
  return wait;
}

// The error of this side may only follow from the other's: the first one of
// both counts.
Status Sides::Fail(const Side& side, const Status& status) {
  linked_abort_->Break(LinkedAbort::From::kOutside,
                       Translate(status, side.ranks, size_));
  return linked_abort_->first();
}

}  // namespace lockstep::worker::collective::hierarchical
