// Forms the communicator of a generation with the backend that suits its ranks.
#ifndef LOCKSTEP_WORKER_COLLECTIVE_FACTORY_FORM_COMMUNICATOR_H_
#define LOCKSTEP_WORKER_COLLECTIVE_FACTORY_FORM_COMMUNICATOR_H_

#include <memory>
#include <string>

#include "common/base/status.h"
#include "worker/collective/communicator.h"

namespace lockstep::worker::collective {

// One rank gets backend "self", except for modules asked for by name. With
// more ranks, rank 0 chooses once for all (backend_choice.h): "auto" is "nccl"
// when every rank has a GPU of its own, its module and a library that fit;
// "shm" when all ranks are on one host; "tcp" when each rank has a host of its
// own; else "hierarchical". A backend asked for by name is checked against the
// same facts.
//
// Blocks until every peer is connected: at most until the forming deadline,
// and 5 s for connecting once all peers have come. The process must ignore
// SIGPIPE.
//
// InvalidArgument: unknown backend, bad rank or address. NotFound: the
// backend's module is not installed. FailedPrecondition: the module does not
// fit this program, a rank cannot use the backend that was asked for (the
// error names the rank), or the ranks ask for different ones.
// DeadlineExceeded: some ranks did not come; the error names them.
// Unavailable: a rank went away while forming, which is an ordinary event:
// form again as a new generation. ResourceExhausted: the system gives no
// memory or no thread.
//
// Where `choice` is not null and there are several ranks, it becomes a sentence
// that says which backend was taken, how it reduces, and why: "backend shm: all
// 2 ranks are on one host; each of 2 ranks reduces its half in place".
StatusOr<std::unique_ptr<Communicator>> FormCommunicator(
    const CommunicatorOptions& options, std::string* choice = nullptr);

}  // namespace lockstep::worker::collective

#endif  // LOCKSTEP_WORKER_COLLECTIVE_FACTORY_FORM_COMMUNICATOR_H_
