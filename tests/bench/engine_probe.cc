// Our side of the all-reduce benchmarks.
//
//   engine_probe --rank R --ranks N --store DIR --backend NAME [--pin 1]
//     [--address IP] [--plan LINE] and what peers/probe.h says
//
// Variant 0 reduces in the communicator's own memory, 1 in private memory that
// it is told of.
#include <fmt/format.h>

#include <map>
#include <memory>
#include <string>

#include "tests/bench/peers/probe.h"
#include "worker/collective/communicator.h"
#include "worker/collective/factory/form_communicator.h"
#include "worker/collective/testing.h"

namespace lockstep {
namespace {

constexpr Duration kTimeout = std::chrono::seconds(60);

struct Engine {
  Communicator* communicator = nullptr;
  const Buffer* own = nullptr;
  const Buffer* registered = nullptr;
};

const float* Reduce(void* self, const probe_case* c) {
  auto* const engine = static_cast<Engine*>(self);
  const Buffer* const buffer =
      c->variant == 0 ? engine->own : engine->registered;
  const Status status =
      Run(engine->communicator,
          {.slice = {buffer, 0, c->count, DataType::kFloat32}}, kTimeout);
  if (status.ok()) return static_cast<const float*>(buffer->data);
  fmt::print(stderr, "engine_probe: {}\n", Message(status));
  return nullptr;
}

Status Measure(probe* p, const CommunicatorOptions& options, int* code) {
  Engine engine;
  LOCKSTEP_ASSIGN_OR_RETURN(const auto communicator, FormCommunicator(options));
  engine.communicator = communicator.get();
  // All cases are of one kind of memory.
  const size_t count = probe_largest(p);
  float* data = nullptr;
  if (p->cases[0].variant == 0) {
    LOCKSTEP_ASSIGN_OR_RETURN(engine.own,
                              communicator->Allocate(count * sizeof(float)));
    data = static_cast<float*>(engine.own->data);
  } else {
    data = probe_allocate(count);
    if (data == nullptr) return ResourceExhausted("no memory");
    LOCKSTEP_ASSIGN_OR_RETURN(
        engine.registered, communicator->Register(data, count * sizeof(float)));
  }
  if (p->rank == 0 && !communicator->Plan().empty()) {
    fmt::print("plan: {}\n", communicator->Plan());
  }
  *code = probe_run(p, data, Reduce, &engine);
  return OkStatus();
}

int Main(int argc, char** argv) {
  signal(SIGPIPE, SIG_IGN);
  const int rank = atoi(probe_argument(argc, argv, "--rank", "0"));
  const int ranks = atoi(probe_argument(argc, argv, "--ranks", "1"));
  if (atoi(probe_argument(argc, argv, "--pin", "0")) != 0) probe_pin(rank);
  probe p;
  int code = probe_begin(&p, argc, argv, rank, ranks);
  if (code != 0) return code;
  DirectoryRendezvousStore store(probe_argument(argc, argv, "--store", "."));
  CommunicatorOptions options;
  options.backend = probe_argument(argc, argv, "--backend", "auto");
  options.rank = rank;
  options.size = ranks;
  options.label = "engine_probe";
  options.bind_address = probe_argument(argc, argv, "--address", "127.0.0.1");
  options.reduction_plan = probe_argument(argc, argv, "--plan", "");
  options.operation_timeout = kTimeout;
  options.forming_deadline = MonotonicNow() + std::chrono::seconds(20);
  options.rendezvous = &store;
  const Status status = Measure(&p, options, &code);
  if (status.ok()) return code;
  fmt::print(stderr, "engine_probe: {}\n", Message(status));
  return 1;
}

}  // namespace
}  // namespace lockstep

int main(int argc, char** argv) { return lockstep::Main(argc, argv); }
