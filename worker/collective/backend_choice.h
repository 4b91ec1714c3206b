// Which backend the ranks of a generation reduce with.
//
// Rank 0 decides once, by the pure function here, from what every rank offers:
// its GPU, its host, what it was asked for. All ranks read that one decision
// (backend_agreement.h), so they cannot come to different ones.
#ifndef LOCKSTEP_WORKER_COLLECTIVE_BACKEND_CHOICE_H_
#define LOCKSTEP_WORKER_COLLECTIVE_BACKEND_CHOICE_H_

#include <string>
#include <string_view>
#include <vector>

#include "common/base/status.h"

namespace lockstep {

// More ranks than this do not share memory on one host.
inline constexpr int kMaxShmRanks = 128;

struct RankOffer {
  // Of a GPU, unique among all hosts: "HOST/GPU-UUID". Empty: `why_not`.
  std::string device;
  // "NCCL 2.28.9": must be the same everywhere.
  std::string library;
  // The end of a sentence that begins with the rank: "has no GPU".
  std::string why_not;
  // Where memory can be shared: the same text on ranks of one host that may.
  // Empty: with nobody.
  std::string host;
  // Of that host, for people: "node7 (10.0.0.7)".
  std::string host_name;
  // CommunicatorOptions::backend: must be the same everywhere.
  std::string wish;
};

// One line of text; each of its parts is cut after 2 KiB.
std::string EncodeOffer(const RankOffer& offer);
// InvalidArgument for bytes that are none.
StatusOr<RankOffer> DecodeOffer(std::string_view bytes);

struct BackendChoice {
  // Never "auto".
  std::string backend;
  // Of each rank, the number of its host; hosts are numbered by their first
  // ranks, from 0.
  std::vector<int> hosts;
  // "backend shm: all 4 ranks are on one host".
  std::string why;
  // CommunicatorOptions::reduction_plan, rank 0's.
  std::string plan = {};
};

// offers[r] is rank r's; more than one. PURE.
// FailedPrecondition: the wish cannot be granted, or the wishes differ; the
// sentence names ranks.
StatusOr<BackendChoice> ChooseBackend(const std::vector<RankOffer>& offers);

// Text in pieces of at most `piece_bytes`, at least one; the first says how
// many. A choice of 4,096 ranks is one piece of 32 KiB wherever they are.
std::vector<std::string> EncodeChoice(const StatusOr<BackendChoice>& choice,
                                      size_t piece_bytes = 32 << 10);
// How many pieces there are, by the first. InvalidArgument for other bytes.
StatusOr<int> PiecesOf(std::string_view first);
// The error that was encoded, with its reason, or InvalidArgument for bytes
// that are no choice of `size` ranks.
StatusOr<BackendChoice> DecodeChoice(const std::vector<std::string>& pieces,
                                     int size);

// Reason (ReasonOf) of a reduction plan that was refused, which all ranks are
// told alike: they may form again without it.
inline constexpr char kReasonPlanRefused[] = "PLAN_REFUSED";

// Whether a reduction plan, the line of Communicator::ReductionPlan, is one of
// these ranks. InvalidArgument with kReasonPlanRefused: it is for another
// backend, size or grouping; the sentence names both.
Status CheckReductionPlan(const BackendChoice& choice, std::string_view line);

}  // namespace lockstep

#endif  // LOCKSTEP_WORKER_COLLECTIVE_BACKEND_CHOICE_H_
