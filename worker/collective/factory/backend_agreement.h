// How all ranks of a generation agree on one backend. Every rank writes its
// offer; rank 0 reads them all, chooses (backend_choice.h) and writes one
// choice, which all others read. That is three messages a rank, whatever the
// choice.
//
//  backend/offer/RANK   one line, by every rank
//  backend/choice       by rank 0; backend/choice/1... where it is long
#ifndef LOCKSTEP_WORKER_COLLECTIVE_FACTORY_BACKEND_AGREEMENT_H_
#define LOCKSTEP_WORKER_COLLECTIVE_FACTORY_BACKEND_AGREEMENT_H_

#include "common/base/status.h"
#include "worker/collective/communicator.h"
#include "worker/collective/factory/backend_choice.h"

namespace lockstep::worker::collective {

// Returns the same choice, or the same refusal, on every rank, with
// `options.label` before it. Waits until the forming deadline, and at most a
// second more for rank 0's choice. DeadlineExceeded: names the ranks that have
// not come. FailedPrecondition: the backend that was asked for cannot be used.
// InvalidArgument: a rank wrote something that is not an offer, or rank 0's
// reduction plan does not fit, or this rank was given another plan. Else the
// store's errors.
StatusOr<BackendChoice> AgreeOnBackend(const CommunicatorOptions& options,
                                       const RankOffer& mine);

}  // namespace lockstep::worker::collective

#endif  // LOCKSTEP_WORKER_COLLECTIVE_FACTORY_BACKEND_AGREEMENT_H_
