// lockstep-bench: measures collectives, between ranks that it starts on this
// host or as a rank of a job.
#include <fmt/format.h>
#include <signal.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "common/base/logging.h"
#include "common/base/random.h"
#include "worker/bench/bench_run.h"
#include "worker/bench/local_ranks.h"
#include "worker/bench/options.h"
#include "worker/collective/factory/form_communicator.h"
#include "worker/runtime/session.h"

namespace lockstep::worker::bench {
namespace {

constexpr int kExitWrong = 1;
constexpr Duration kFormingTimeout = std::chrono::seconds(30);
// Of ranks whose peer has failed.
constexpr double kGraceSeconds = 2;

int Fail(int rank, const Status& status) {
  fmt::print(stderr, "lockstep-bench: rank {}: {}\n", rank, Message(status));
  return kExitWrong;
}

// The GPU of `rank`. Ranks that share one look like hosts of their own: NCCL
// refuses them within a host.
int DeviceOf(const BenchOptions& options, int rank) {
  if (options.backend != "nccl") return -1;
  const std::vector<int>& devices = options.devices;
  if (devices.empty()) return rank;
  if (std::count(devices.begin(), devices.end(), devices[rank]) > 1) {
    setenv("NCCL_HOSTID", fmt::format("rank-{}", rank).c_str(), 1);
  }
  return devices[rank];
}

int LocalRank(const BenchOptions& options, collective::CommunicatorOptions form,
              int rank) {
  signal(SIGPIPE, SIG_IGN);
  if (options.pin) PinToCore(rank);
  form.rank = rank;
  form.device = DeviceOf(options, rank);
  form.forming_deadline = MonotonicNow() + kFormingTimeout;
  auto communicator = FormCommunicator(form);
  if (!communicator.ok()) return Fail(rank, communicator.status());
  bool wrong = false;
  const Status status = RunBench(options, communicator->get(), &wrong);
  if (!status.ok()) {
    (*communicator)->Abort(Message(status));
    return Fail(rank, status);
  }
  return wrong ? kExitWrong : 0;
}

int LocalMain(const BenchOptions& options) {
  auto store = SharedRendezvousStore::Create();
  if (!store.ok()) return Fail(0, store.status());
  collective::CommunicatorOptions form;
  form.backend = options.backend;
  form.size = options.ranks;
  form.label = "lockstep-bench";
  form.bind_address = options.bind_address;
  form.operation_timeout = options.timeout;
  form.key = RandomBytes(32);
  form.rendezvous = store->get();
  return RunRanks(options.ranks, kGraceSeconds,
                  [&](int rank) { return LocalRank(options, form, rank); });
}

int JobMain(const BenchOptions& options, int argc, char** argv) {
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  runtime::SessionOptions join;
  join.backend = options.backend;
  join.operation_timeout = options.timeout;
  auto session = runtime::Session::Join(join);
  if (!session.ok()) {
    Fail(0, session.status());
    return runtime::Session::ExitCodeFor(session.status());
  }
  std::string command;
  for (int i = 1; i < argc; ++i) command += std::string(" ") + argv[i];
  bool wrong = false;
  Status status = (*session)->Form({{"bench", command}});
  if (status.ok()) {
    if (options.pin) PinToCore((*session)->identity().local_rank);
    status = RunBench(options, (*session)->communicator(), &wrong);
  }
  if (status.ok() && wrong)
    status = DataLoss("a collective returned wrong data");
  const int code = (*session)->Leave(status);
  return status.ok() ? code : std::max(Fail((*session)->rank(), status), code);
}

int Main(int argc, char** argv) {
  const ParsedBench parsed = ParseBench(argc, argv);
  if (parsed.exit_code >= 0) return parsed.exit_code;
  InitLogging("bench", "warn");
  if (std::getenv("LOCKSTEP_LINK") != nullptr) {
    return JobMain(parsed.options, argc, argv);
  }
  return LocalMain(parsed.options);
}

}  // namespace
}  // namespace lockstep::worker::bench

int main(int argc, char** argv) {
  try {
    return lockstep::worker::bench::Main(argc, argv);
  } catch (const std::exception& error) {
    // Such as no memory.
    std::fprintf(stderr, "lockstep-bench: %s\n", error.what());
    return lockstep::worker::bench::kExitWrong;
  }
}
