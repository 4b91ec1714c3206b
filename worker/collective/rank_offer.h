// The facts about a rank by which the ranks of a generation choose a backend.
#ifndef LOCKSTEP_WORKER_COLLECTIVE_RANK_OFFER_H_
#define LOCKSTEP_WORKER_COLLECTIVE_RANK_OFFER_H_

#include <string>

namespace lockstep::worker::collective {

struct RankOffer {
  // The rank's GPU, unique among all hosts: "HOST/GPU-UUID". Empty: it has none
  // that nccl can use; `why_not` says why.
  std::string device;
  // "NCCL 2.28.9". Must be the same on all ranks.
  std::string library;
  // The end of a sentence that begins with the rank: "has no GPU".
  std::string why_not;
  // Ranks with the same text can share memory. Empty: the rank cannot share
  // memory.
  std::string host;
  // The host's name in sentences: "node7 (10.0.0.7)".
  std::string host_name;
  // CommunicatorOptions::backend. Must be the same on all ranks.
  std::string wish;
};

}  // namespace lockstep::worker::collective

#endif  // LOCKSTEP_WORKER_COLLECTIVE_RANK_OFFER_H_
