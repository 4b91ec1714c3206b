// Our side of the all-reduce benchmarks.
//
//   engine_probe [--pin 1] and what probe_rank.h and peers/probe.h say
//
// Variant 0 reduces in the communicator's own memory, 1 in private memory that
// it is told of.
#include <fmt/format.h>

#include "tests/bench/probe_rank.h"

namespace lockstep::worker {
namespace {

constexpr Duration kTimeout = std::chrono::seconds(60);

// All cases are of one kind of memory.
struct Engine {
  std::unique_ptr<collective::Communicator> communicator;
  const collective::Buffer* buffer = nullptr;
};

const float* Reduce(void* self, const probe_case* c) {
  auto* const engine = static_cast<Engine*>(self);
  const collective::Buffer* const buffer = engine->buffer;
  const Status status =
      Run(engine->communicator.get(),
          {.slice = {buffer, 0, c->count, collective::DataType::kFloat32}},
          kTimeout);
  if (status.ok()) return static_cast<const float*>(buffer->data);
  fmt::print(stderr, "engine_probe: {}\n", Message(status));
  return nullptr;
}

Status Measure(int argc, char** argv) {
  probe p;
  if (probe_begin(&p, argc, argv) != 0) return InvalidArgument("see above");
  const ProbeRank rank(argc, argv);
  Engine engine;
  LOCKSTEP_ASSIGN_OR_RETURN(engine.communicator,
                            rank.Form(rank.store, kTimeout));
  const size_t count = probe_largest(&p);
  float* data = nullptr;
  if (p.cases[0].variant == 0) {
    LOCKSTEP_ASSIGN_OR_RETURN(
        engine.buffer, engine.communicator->Allocate(count * sizeof(float)));
    data = static_cast<float*>(engine.buffer->data);
  } else {
    data = probe_allocate(count);
    if (data == nullptr) return ResourceExhausted("no memory");
    LOCKSTEP_ASSIGN_OR_RETURN(engine.buffer, engine.communicator->Register(
                                                 data, count * sizeof(float)));
  }
  if (p.rank == 0 && !engine.communicator->Plan().empty()) {
    fmt::print("plan: {}\n", engine.communicator->Plan());
  }
  return probe_run(&p, data, Reduce, &engine) == 0
             ? OkStatus()
             : Unavailable("an operation failed");
}

}  // namespace
}  // namespace lockstep::worker

int main(int argc, char** argv) {
  return lockstep::RunProbe(lockstep::worker::Measure, argc, argv);
}
