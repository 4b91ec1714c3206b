#include "worker/collective/factory/backend_agreement.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "common/base/clock.h"

namespace lockstep::worker::collective {
namespace {

using std::chrono::milliseconds;

constexpr char kChoiceKey[] = "backend/choice";
// After the deadline: for rank 0 to see who has come meanwhile, and for the
// others to hear what it says then.
constexpr Duration kLastLook = milliseconds(20);
constexpr Duration kLastLooks = milliseconds(500);
constexpr Duration kLastWord = milliseconds(1000);
constexpr size_t kNamedRanks = 16;

std::string OfferKey(int rank) { return fmt::format("backend/offer/{}", rank); }

std::string PieceKey(int piece) {
  return piece == 0 ? kChoiceKey : fmt::format("{}/{}", kChoiceKey, piece);
}

// "1, 3": ranks that have not come.
std::string Missing(const std::vector<int>& ranks) {
  std::string text;
  for (size_t i = 0; i < std::min(ranks.size(), kNamedRanks); ++i) {
    text += fmt::format("{}{}", i == 0 ? "" : ", ", ranks[i]);
  }
  if (ranks.size() > kNamedRanks) {
    text += fmt::format(" and {} more", ranks.size() - kNamedRanks);
  }
  return text;
}

// What no other offer can make good.
Status Hopeless(int rank, const RankOffer& offer, const RankOffer& first) {
  if (offer.wish != first.wish) {
    return FailedPrecondition(
        "the ranks ask for different backends: rank 0 for {}, rank {} for {}",
        first.wish, rank, offer.wish);
  }
  if (offer.wish == "nccl" && offer.device.empty()) {
    return FailedPrecondition("backend nccl cannot be used: rank {} {}", rank,
                              offer.why_not);
  }
  return OkStatus();
}

// Rank 0's part.
class Chooser {
 public:
  Chooser(const CommunicatorOptions& options, const RankOffer& mine)
      : options_(options), offers_(options.size) {
    offers_[0] = mine;
  }

  StatusOr<BackendChoice> Choose() {
    for (int rank = 1; rank < options_.size; ++rank) {
      const Status status = Take(rank, options_.forming_deadline);
      if (absl::IsDeadlineExceeded(status)) return TakeTheRest(rank);
      LOCKSTEP_RETURN_IF_ERROR(status);
    }
    return ChooseBackend(offers_);
  }

 private:
  Status Take(int rank, MonoTime deadline) {
    LOCKSTEP_ASSIGN_OR_RETURN(
        const std::string bytes,
        options_.rendezvous->Get(OfferKey(rank), deadline));
    auto offer = DecodeOffer(bytes);
    if (!offer.ok()) {
      return Annotate(offer.status(), fmt::format("rank {} wrote", rank));
    }
    offers_[rank] = *std::move(offer);
    return Hopeless(rank, offers_[rank], offers_[0]);
  }

  // The deadline is over: who else is missing?
  Status TakeTheRest(int first) {
    std::vector<int> missing = {first};
    const MonoTime end = MonotonicNow() + kLastLooks;
    for (int rank = first + 1; rank < options_.size; ++rank) {
      const Status status =
          Take(rank, std::min(MonotonicNow() + kLastLook, end));
      if (absl::IsDeadlineExceeded(status)) {
        missing.push_back(rank);
      } else {
        LOCKSTEP_RETURN_IF_ERROR(status);
      }
    }
    return DeadlineExceeded("rank {} of {} did not come in time",
                            Missing(missing), options_.size);
  }

  const CommunicatorOptions& options_;
  std::vector<RankOffer> offers_;
};

Status Publish(RendezvousStore* store, const StatusOr<BackendChoice>& choice) {
  const std::vector<std::string> pieces = EncodeChoice(choice);
  // Who reads the first finds the others.
  for (size_t i = pieces.size(); i-- > 0;) {
    LOCKSTEP_RETURN_IF_ERROR(
        store->Put(PieceKey(static_cast<int>(i)), pieces[i]));
  }
  return OkStatus();
}

StatusOr<BackendChoice> Read(const CommunicatorOptions& options) {
  const MonoTime deadline = options.forming_deadline + kLastWord;
  auto first = options.rendezvous->Get(kChoiceKey, deadline);
  if (absl::IsDeadlineExceeded(first.status())) {
    return DeadlineExceeded(
        "rank 0 did not choose a backend in time: it has not come");
  }
  LOCKSTEP_RETURN_IF_ERROR(first.status());
  LOCKSTEP_ASSIGN_OR_RETURN(const int count, PiecesOf(*first));
  std::vector<std::string> pieces = {*std::move(first)};
  for (int i = 1; i < count; ++i) {
    LOCKSTEP_ASSIGN_OR_RETURN(std::string piece,
                              options.rendezvous->Get(PieceKey(i), deadline));
    pieces.push_back(std::move(piece));
  }
  return DecodeChoice(pieces, options.size);
}

// Rank 0's part. A plan that does not fit is refused for all.
StatusOr<BackendChoice> Choose(const CommunicatorOptions& options,
                               const RankOffer& mine) {
  LOCKSTEP_RETURN_IF_ERROR(Hopeless(options.rank, mine, mine));
  LOCKSTEP_ASSIGN_OR_RETURN(BackendChoice choice,
                            Chooser(options, mine).Choose());
  choice.plan = options.reduction_plan;
  if (!choice.plan.empty()) {
    LOCKSTEP_RETURN_IF_ERROR(CheckReductionPlan(choice, choice.plan));
  }
  return choice;
}

StatusOr<BackendChoice> Agree(const CommunicatorOptions& options,
                              const RankOffer& mine) {
  if (options.rank == 0) {
    auto choice = Choose(options, mine);
    LOCKSTEP_RETURN_IF_ERROR(Publish(options.rendezvous, choice));
    return choice;
  }
  LOCKSTEP_RETURN_IF_ERROR(
      options.rendezvous->Put(OfferKey(options.rank), EncodeOffer(mine)));
  LOCKSTEP_RETURN_IF_ERROR(Hopeless(options.rank, mine, mine));
  LOCKSTEP_ASSIGN_OR_RETURN(BackendChoice choice, Read(options));
  if (!options.reduction_plan.empty() &&
      options.reduction_plan != choice.plan) {
    return InvalidArgument(
        "rank {} was given the reduction plan \"{}\", and rank 0 {}",
        options.rank, options.reduction_plan,
        choice.plan.empty() ? "none" : '"' + choice.plan + '"');
  }
  return choice;
}

}  // namespace

StatusOr<BackendChoice> AgreeOnBackend(const CommunicatorOptions& options,
                                       const RankOffer& mine) {
  auto choice = Agree(options, mine);
  if (!choice.ok()) return Annotate(choice.status(), options.label);
  return choice;
}

}  // namespace lockstep::worker::collective
