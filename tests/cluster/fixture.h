// Tests with a cluster of real processes: a coordinator and two worker daemons
// with one core each, mTLS on, made for each test in a directory under /tmp.
//
// After each test the fixture cancels what still runs, stops the daemons and
// looks for what must not be: a daemon that ended by itself or with an error,
// a job that does not end, a process or a file of a task that stays. When a
// test fails it prints the jobs and the ends of the daemons' logs.
#ifndef LOCKSTEP_TESTS_CLUSTER_FIXTURE_H_
#define LOCKSTEP_TESTS_CLUSTER_FIXTURE_H_

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "client/lib/client.h"
#include "client/local/local_cluster.h"
#include "common/base/clock.h"
#include "common/base/file.h"
#include "common/base/status.h"
#include "common/os/process.h"
#include "worker/task/rank_page.h"

namespace lockstep {

// Long enough for a loaded machine and sanitizers; only failures wait so long.
inline constexpr Duration kPatience = std::chrono::seconds(60);

// Looks every 10 ms until `condition` holds; false after `patience`.
bool Eventually(const std::function<bool()>& condition,
                Duration patience = kPatience);

// What a program said and how it ended.
struct CommandResult {
  int code = -1;  // 128 + signal where one killed it.
  std::string out;
  std::string err;
};

class ClusterTest : public testing::Test {
 protected:
  ClusterTest();
  ~ClusterTest() override;
  void SetUp() override;
  void TearDown() override;

  // Before StartCluster, which SetUp calls unless `manual_start_`.
  cli::LocalClusterOptions options_;
  bool manual_start_ = false;
  void StartCluster();

  // Jobs. -------------------------------------------------------------------

  // A chief and `tasks` - 1 workers with one core each.
  v1::JobSpec Spec(const std::string& name, v1::JobKind kind, int tasks,
                   std::vector<std::string> argv);
  v1::JobSpec Program(const std::string& name, int tasks,
                      std::vector<std::string> argv) {
    return Spec(name, v1::JOB_KIND_PROGRAM, tasks, std::move(argv));
  }
  // "sh -c `script`".
  v1::JobSpec Shell(const std::string& name, int tasks,
                    const std::string& script) {
    return Program(name, tasks, {"/bin/sh", "-c", script});
  }
  // step_program with an output directory of its own.
  v1::JobSpec Steps(const std::string& name, int tasks,
                    std::vector<std::string> flags);
  std::string OutputOf(const std::string& job) const;

  // A failure that ends the test where the job cannot be submitted.
  void Submit(const v1::JobSpec& spec);
  // The job as it is; empty, with a failure of the test, when it cannot be
  // had.
  v1::Job Get(const std::string& name);
  // The job once `condition` holds. A failure of the test, and the job as it
  // is, after `patience` or when the job has ended without.
  v1::Job WaitUntil(const std::string& name, const std::string& what,
                    const std::function<bool(const v1::Job&)>& condition,
                    Duration patience = kPatience);
  v1::Job WaitFor(const std::string& name, v1::JobState state,
                  Duration patience = kPatience);
  // Its final state, which must be `state`.
  v1::Job WaitEnd(const std::string& name, v1::JobState state,
                  Duration patience = kPatience);
  // Submit and WaitEnd.
  v1::Job RunJob(const v1::JobSpec& spec, v1::JobState state,
                 Duration patience = kPatience);

  // The job once `recoveries` are over and all ranks of it, which is native,
  // train again.
  v1::Job AwaitRecovered(const std::string& name, int32_t recoveries);

  // Lines of one rank (all attempts: 0), without time stamps.
  std::vector<std::string> Output(const std::string& job, int rank,
                                  int attempt = 0);
  // The first line of it that begins with `start`; "" where there is none.
  std::string Line(const std::string& job, int rank, std::string_view start,
                   int attempt = 0);
  // Output has that line, now or soon.
  bool HasLine(const std::string& job, int rank, std::string_view start);

  // Of the running attempt, by rank.
  static std::map<int, v1::RankStatus> Ranks(const v1::Job& job);
  static int64_t PidOf(const v1::Job& job, int rank);
  // The rank's page on its host: works while daemons are away. Absent where
  // there is none.
  std::optional<worker::task::RankPage> PageOf(const v1::Job& job,
                                               int rank) const;
  // Steps committed, as that page says. -1 where there is none.
  int64_t CommittedOnPage(const v1::Job& job, int rank) const;

  // Daemons. ----------------------------------------------------------------

  // SIGKILL, on purpose.
  void KillDaemon(const std::string& daemon);
  // SIGTERM; it must leave with 0.
  void StopDaemon(const std::string& daemon);
  void StartDaemon(const std::string& daemon);
  // All that do not run.
  void StartAll();
  // Whether the daemon has ended, by a fault point; false while it runs.
  bool FaultStruck(const std::string& daemon);

  // Runs a program to its end. Its HOME is the test's directory.
  struct Command {
    Process process;
    std::string out;
    std::string err;
  };
  Command StartCommand(const std::vector<std::string>& argv,
                       const std::vector<std::string>& env = {});
  CommandResult WaitCommand(const Command& command,
                            Duration patience = kPatience);
  CommandResult RunCommand(const std::vector<std::string>& argv,
                           const std::vector<std::string>& env = {},
                           Duration patience = kPatience);
  // For `lockstep` as the cluster's user.
  std::vector<std::string> CliEnvironment() const;
  // `lockstep ARGUMENTS` as the cluster's user.
  CommandResult Lockstep(std::vector<std::string> arguments,
                         Duration patience = kPatience);
  // Puts `table` in the place of the local cluster's table of machines,
  // runtimes and images, which the coordinator then reads again.
  void UseSite(const std::string& table);
  std::string Binary(const std::string& name) const;
  // The folder of the test programs.
  static std::string TestBinary(const std::string& name);

  cli::Client* client() { return client_.get(); }
  cli::LocalCluster* cluster() { return cluster_.get(); }
  // The test's directory.
  const std::string& root() const { return root_; }
  std::string Path(const std::string& name) const;
  void WriteFile(const std::string& path, std::string_view bytes);
  // Shards of `count` images (idx_files.h) under Path(name), which it returns.
  // Runs lockstep-data.
  std::string PackImages(const std::string& name, int count,
                         int records_per_shard);
  std::string ReadFile(const std::string& path);

 private:
  void EndJobs();
  void CheckNothingLeft();
  void StopDaemons();
  void DumpLogs();

  std::string root_;
  std::string bin_;
  std::unique_ptr<cli::LocalCluster> cluster_;
  std::unique_ptr<cli::Client> client_;
  // Daemons that the test itself stopped.
  std::set<std::string> stopped_;
  int commands_ = 0;
};

// Processes that work below one of `dirs`, or name one in their arguments:
// "PID COMMAND".
std::vector<std::string> ProcessesUnder(const std::vector<std::string>& dirs);

}  // namespace lockstep

#endif  // LOCKSTEP_TESTS_CLUSTER_FIXTURE_H_
