// Runs a probe program (peers/probe.h) on all its ranks, in fresh processes.
#ifndef LOCKSTEP_TESTS_BENCH_PROBE_RUN_H_
#define LOCKSTEP_TESTS_BENCH_PROBE_RUN_H_

#include <memory>
#include <string>
#include <vector>

#include "common/base/clock.h"
#include "common/base/status.h"
#include "tests/bench/engine_rows.h"

namespace lockstep {

// Network namespaces as hosts, whose lines are shaped; gone with the object.
class BenchHosts {
 public:
  // PermissionDenied without root, NotFound without ip and tc.
  static StatusOr<std::unique_ptr<BenchHosts>> Make(int count,
                                                    const std::string& rate);
  ~BenchHosts();
  BenchHosts(const BenchHosts&) = delete;
  BenchHosts& operator=(const BenchHosts&) = delete;

  // What runs a program there.
  std::vector<std::string> Prefix(int host) const;
  std::string Address(int host) const;

 private:
  BenchHosts(std::string prefix, int count)
      : prefix_(std::move(prefix)), count_(count) {}
  const std::string prefix_;
  const int count_;
};

struct ProbeCase {
  uint64_t bytes = 0;
  SampleCount count;
  int variant = 0;
};

struct ProbeJob {
  const Contender* contender = nullptr;
  int ranks = 2;
  std::vector<ProbeCase> cases;
  const BenchHosts* hosts = nullptr;  // null: all ranks on this host
  Duration watchdog = std::chrono::seconds(60);
};

struct ProbeResult {
  // Of each case its samples: seconds of one operation, from the first rank's
  // start to the last rank's end.
  std::vector<std::vector<double>> seconds;
  std::vector<bool> right;  // whether each case's last result was
  // All cases but where `failure` is not OK: then those before it stopped.
  size_t finished = 0;
  Status failure;
  std::string output;  // on stdout
};

// Whether its program was built: some need packages of their own.
bool HasProgram(const Contender& contender);

// Where ranks fail or stand still, the result's `failure` holds the last lines
// of stderr. Errors: it could not be started.
StatusOr<ProbeResult> RunProbe(const ProbeJob& job);

// The command line of rank 0, for people.
std::string CommandOf(const ProbeJob& job);

}  // namespace lockstep

#endif  // LOCKSTEP_TESTS_BENCH_PROBE_RUN_H_
