// How the ranks of a generation agree whether they use NCCL.
//
// Every rank writes its offer under backend/RANK in the rendezvous store: a
// device and a library, or a sentence why it has none. A rank that cannot
// takes Gloo at once; one that can reads the offers of all. So all ranks come
// to the same backend, and a rank without a GPU waits for nobody.
#ifndef LOCKSTEP_WORKER_COLLECTIVE_BACKEND_CHOICE_H_
#define LOCKSTEP_WORKER_COLLECTIVE_BACKEND_CHOICE_H_

#include <string>
#include <string_view>
#include <vector>

#include "common/base/status.h"

namespace lockstep {

struct CommunicatorOptions;

struct RankOffer {
  // Of a GPU, unique among all hosts: "HOST/GPU-UUID". Empty: `why_not`.
  std::string device;
  // "NCCL 2.28.9": must be the same everywhere.
  std::string library;
  // The end of a sentence that begins with the rank: "has no GPU".
  std::string why_not;
};

// One line of text; offers of more than 2 KiB are cut.
std::string EncodeOffer(const RankOffer& offer);
// InvalidArgument for bytes that are none.
StatusOr<RankOffer> DecodeOffer(std::string_view bytes);

struct BackendChoice {
  bool nccl = false;
  // "backend nccl: each of the 4 ranks has a GPU of its own (NCCL 2.28.9)",
  // "backend gloo: rank 1 has no GPU".
  std::string why;
};

// offers[r] is rank r's. PURE; the same on every rank.
BackendChoice ChooseBackend(const std::vector<RankOffer>& offers);

// Writes `mine` and, where it is one, waits for those of the others until the
// forming deadline. DeadlineExceeded names the rank that has not come.
StatusOr<BackendChoice> AgreeOnBackend(const CommunicatorOptions& options,
                                       const RankOffer& mine);

}  // namespace lockstep

#endif  // LOCKSTEP_WORKER_COLLECTIVE_BACKEND_CHOICE_H_
