#include "tests/bench/model/rank_runs.h"

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <filesystem>

#include "common/base/fd.h"
#include "worker/collective/factory/form_communicator.h"
#include "worker/collective/testing.h"

namespace lockstep::model {
namespace {

constexpr Duration kLongestRun = std::chrono::minutes(10);

Status EnterNamespace(const std::string& name) {
  const Fd fd(open(("/run/netns/" + name).c_str(), O_RDONLY | O_CLOEXEC));
  if (fd.get() < 0 || setns(fd.get(), CLONE_NEWNET) != 0) {
    return ErrnoStatus(errno, "entering namespace " + name);
  }
  return OkStatus();
}

Status RunRank(const std::string& prefix, Shape shape, int rank,
               const std::string& dir,
               const std::function<Status(Communicator*)>& fn) {
  signal(SIGPIPE, SIG_IGN);
  const int host = rank / shape.ranks;
  DirectoryRendezvousStore store(dir);
  CommunicatorOptions options = TestOptions(rank, shape.size(), &store);
  options.backend = "auto";
  if (prefix == "-") {
    options.host = std::to_string(host);
  } else {
    LOCKSTEP_RETURN_IF_ERROR(EnterNamespace(prefix + std::to_string(host)));
    options.bind_address = fmt::format("10.77.0.{}", host + 1);
  }
  LOCKSTEP_ASSIGN_OR_RETURN(const auto communicator, FormCommunicator(options));
  LOCKSTEP_RETURN_IF_ERROR(fn(communicator.get()));
  // Nobody leaves while others still measure.
  return Run(communicator.get(), {.kind = CollectiveKind::kBarrier}, kPatience);
}

}  // namespace

Status RunRanks(const std::string& prefix, Shape shape,
                const std::function<Status(Communicator*)>& fn) {
  char dir[] = "/tmp/lockstep-model-XXXXXX";
  if (mkdtemp(dir) == nullptr) return ErrnoStatus(errno, "making a directory");
  Status result;
  {
    RankProcesses ranks(shape.size(), [&](int rank) {
      const Status status = RunRank(prefix, shape, rank, dir, fn);
      if (status.ok()) return 0;
      fprintf(stderr, "rank %d: %s\n", rank, Message(status).c_str());
      return 1;
    });
    const MonoTime deadline = MonotonicNow() + kLongestRun;
    for (int rank = 0; rank < shape.size(); ++rank) {
      const int code = ranks.Join(rank, deadline);
      if (code != 0 && result.ok()) {
        result = Internal("rank {} of {}x{} ended with {}", rank, shape.hosts,
                          shape.ranks, code);
      }
    }
  }
  std::filesystem::remove_all(dir);
  return result;
}

double Median(std::vector<double> values) {
  const auto middle = values.begin() + values.size() / 2;
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace lockstep::model
