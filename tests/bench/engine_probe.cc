// Our side of the all-reduce benchmarks.
//
//   engine_probe [--pin 1] and what probe_rank.h and peers/probe.h say
//
// Variant 0 reduces in the communicator's own memory, 1 in private memory that
// it is told of.
#include <fmt/format.h>

#include "tests/bench/probe_rank.h"

namespace lockstep {
namespace {

using worker::collective::Buffer;
using worker::collective::Communicator;
using worker::collective::DataType;
using worker::collective::Run;

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

Status Measure(probe* p, const ProbeRank& rank, int* code) {
  Engine engine;
  LOCKSTEP_ASSIGN_OR_RETURN(const auto communicator,
                            rank.Form(rank.store, kTimeout));
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
  probe p;
  int code = probe_begin(&p, argc, argv);
  if (code != 0) return code;
  const Status status = Measure(&p, ProbeRank(argc, argv), &code);
  if (status.ok()) return code;
  fmt::print(stderr, "engine_probe: {}\n", Message(status));
  return 1;
}

}  // namespace
}  // namespace lockstep

int main(int argc, char** argv) { return lockstep::Main(argc, argv); }
