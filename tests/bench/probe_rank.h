// A rank of a benchmark as its arguments describe it, and its communicator.
//
//   --rank R --ranks N --store DIR [--backend NAME] [--address IP] [--plan
//   LINE]
#ifndef LOCKSTEP_TESTS_BENCH_PROBE_RANK_H_
#define LOCKSTEP_TESTS_BENCH_PROBE_RANK_H_

#include <fmt/format.h>

#include <cerrno>
#include <memory>
#include <string>

#include "tests/bench/peers/probe.h"
#include "worker/collective/factory/form_communicator.h"
#include "worker/collective/testing.h"

namespace lockstep {

struct ProbeRank {
  ProbeRank(int argc, char** argv)
      : rank(atoi(probe_argument(argc, argv, "--rank", "0"))),
        ranks(atoi(probe_argument(argc, argv, "--ranks", "1"))),
        store(probe_argument(argc, argv, "--store", ".")),
        backend(probe_argument(argc, argv, "--backend", "auto")),
        address(probe_argument(argc, argv, "--address", "127.0.0.1")),
        plan(probe_argument(argc, argv, "--plan", "")) {}

  // With the ranks that share `dir`, which is `store` or one below it. Blocks
  // for at most 20 s.
  StatusOr<std::unique_ptr<worker::collective::Communicator>> Form(
      const std::string& dir, Duration timeout) const {
    worker::collective::DirectoryRendezvousStore rendezvous(dir);
    worker::collective::CommunicatorOptions options =
        TestOptionsOf("", rank, ranks, &rendezvous);
    options.backend = backend;
    options.bind_address = address;
    options.reduction_plan = plan;
    options.operation_timeout = timeout;
    return FormCommunicator(options);
  }

  int rank;
  int ranks;
  std::string store;
  std::string backend;
  std::string address;
  std::string plan;
};

// The exit code of a probe that does `measure`; says why where that fails.
inline int RunProbe(Status (*measure)(int argc, char** argv), int argc,
                    char** argv) {
  signal(SIGPIPE, SIG_IGN);
  const Status status = measure(argc, argv);
  if (status.ok()) return 0;
  fmt::print(stderr, "{} of rank {}: {}\n", program_invocation_short_name,
             probe_argument(argc, argv, "--rank", "0"), Message(status));
  return 1;
}

}  // namespace lockstep

#endif  // LOCKSTEP_TESTS_BENCH_PROBE_RANK_H_
