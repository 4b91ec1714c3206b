// Which backend the ranks of a generation reduce with.
//
// Rank 0 decides once, by the pure function here, from what every rank offers:
// its GPU, its host, what it was asked for. All ranks read that one decision
// (backend_agreement.h), so they cannot come to different ones.
#ifndef LOCKSTEP_WORKER_COLLECTIVE_FACTORY_BACKEND_CHOICE_H_
#define LOCKSTEP_WORKER_COLLECTIVE_FACTORY_BACKEND_CHOICE_H_

#include <string>
#include <string_view>
#include <vector>

#include "common/base/status.h"
#include "worker/collective/rank_offer.h"

namespace lockstep::worker::collective {

// More ranks than this do not share memory on one host.
inline constexpr int kMaxShmRanks = 128;

// One line of text; each of its parts is cut after 2 KiB.
std::string EncodeOffer(const RankOffer& offer);
// InvalidArgument: the bytes are not an offer.
StatusOr<RankOffer> DecodeOffer(std::string_view bytes);

struct BackendChoice {
  // Never "auto".
  std::string backend;
  // hosts[r] is the number of rank r's host. Hosts are numbered from 0 by their
  // first ranks.
  std::vector<int> hosts;
  // "backend shm: all 4 ranks are on one host".
  std::string why;
  // Rank 0's CommunicatorOptions::reduction_plan.
  std::string plan = {};
};

// Chooses by offers[r], the offer of rank r; there are several ranks. PURE.
// FailedPrecondition: the wish cannot be granted, or the wishes differ; the
// sentence names ranks.
StatusOr<BackendChoice> ChooseBackend(const std::vector<RankOffer>& offers);

// Encodes the choice as text in pieces of at most `piece_bytes`. There is at
// least one piece, and the first one says how many there are. A choice of 4,096
// ranks always fits one piece of 32 KiB.
std::vector<std::string> EncodeChoice(const StatusOr<BackendChoice>& choice,
                                      size_t piece_bytes = 32 << 10);
// Returns the number of pieces, which the first one says. InvalidArgument: the
// bytes are not a first piece.
StatusOr<int> PiecesOf(std::string_view first);
// Returns the choice, or the error that was encoded, with its reason.
// InvalidArgument: the bytes are not a choice of `size` ranks.
StatusOr<BackendChoice> DecodeChoice(const std::vector<std::string>& pieces,
                                     int size);

// Reason (ReasonOf) of the refusal of a reduction plan. All ranks get the same
// refusal, so they may form again without the plan.
inline constexpr char kReasonPlanRefused[] = "PLAN_REFUSED";

// Checks that a reduction plan, the line of Communicator::ReductionPlan, fits
// these ranks. InvalidArgument with kReasonPlanRefused: the plan is for another
// backend, size or grouping; the sentence names both.
Status CheckReductionPlan(const BackendChoice& choice, std::string_view line);

}  // namespace lockstep::worker::collective

#endif  // LOCKSTEP_WORKER_COLLECTIVE_FACTORY_BACKEND_CHOICE_H_
