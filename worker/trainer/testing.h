// For tests: small data that can be learnt, and whole jobs of lockstep-train
// processes under a daemon that is only its rank link.
#ifndef LOCKSTEP_WORKER_TRAINER_TESTING_H_
#define LOCKSTEP_WORKER_TRAINER_TESTING_H_

#include <gtest/gtest.h>
#include <sys/types.h>

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/clock.h"
#include "worker/rank_link/testing.h"
#include "worker/task/rank_page.h"

namespace lockstep::worker::trainer {

// Writes `samples` images of 8 x 8 x 1 in 4 classes to shards in `directory`:
// noise with a bright quarter, which is the class. The same for the same seed.
void WriteQuarters(const std::string& directory, uint64_t samples,
                   uint64_t seed);

struct RankResult {
  // The exit code, 128 + signal, or -1 when it had to be killed at the end of
  // the test's patience.
  int code = -1;
  std::string output;  // Standard output and error.
};

struct JobOptions {
  int ranks = 1;
  std::string output;
  // The same for all ranks, but what `only` adds for one's first process.
  std::vector<std::string> flags;
  int only_rank = -1;
  std::vector<std::string> only;
  int64_t checkpoint_interval = 0;
  uint64_t generation = 1;
  // Where each generation up to this one began; [0] is generation 1.
  std::vector<int64_t> starts = {0};
};

// One generation of a job: processes from the constructor on.
class TestJob {
 public:
  // The program lies in $LOCKSTEP_BIN.
  explicit TestJob(const JobOptions& options);
  // Kills what is left.
  ~TestJob();
  TestJob(const TestJob&) = delete;
  TestJob& operator=(const TestJob&) = delete;

  rank_link::TestDaemon& daemon() { return *daemon_; }
  rank_link::RankKey key(int rank) const;
  pid_t pid(int rank) const { return pids_[static_cast<size_t>(rank)]; }

  // Waits for all, at most 100 s.
  std::vector<RankResult> Wait();
  // Waits for one, at most 100 s, and returns RankResult::code.
  int WaitFor(int rank);

  // What a coordinator does after a loss: each rank hears of the next recovery,
  // in which the ranks `away` are no members.
  void Recover(const std::vector<int>& away = {});
  // Starts a new process as rank `rank`, whose last one has been waited for.
  void Replace(int rank);
  // The reports of rank `rank` so far.
  std::vector<v1::RankReport> reports(int rank);
  // The steps of the checkpoints that it told of.
  std::vector<int64_t> checkpoints(int rank);
  // The page of a rank that has ended; without counters where it has none.
  task::RankPage page(int rank) const;
  // The steps in the state of a rank that runs, as of a moment ago.
  int64_t committed(int rank) const;

 private:
  v1::RankWelcome Welcome(int rank, const std::vector<int>& away) const;
  void Expect(const std::vector<int>& away);
  pid_t Start(int rank);
  std::string OutputPath(int rank) const;
  std::string PagePath(int rank) const;

  const JobOptions options_;
  rank_link::TempDir dir_;
  std::unique_ptr<rank_link::TestDaemon> daemon_;
  std::vector<pid_t> pids_;  // 0 once reaped.
  uint32_t recovery_ = 0;
};

// Runs a job to its end.
std::vector<RankResult> RunJob(const JobOptions& options);

// For jobs that something happens to. The data is made once, and each test has
// a place for what its jobs write.
class DisturbedJobTest : public ::testing::Test {
 public:
  static void SetUpTestSuite();
  static void TearDownTestSuite();

 protected:
  // 3 epochs with steps of `ranks` times `batch` of 962 samples, a checkpoint
  // every 10 steps.
  static JobOptions JobOf(int ranks, int batch, std::string output);
  static void Add(JobOptions* job, std::initializer_list<std::string> flags);
  // The next generation, from the checkpoint of step `start` on.
  static JobOptions Next(JobOptions job, int64_t start);
  std::string Output(const std::string& name) const {
    return output_.path() + "/" + name;
  }

 private:
  static rank_link::TempDir* data_;
  rank_link::TempDir output_;
};

// lockstep-train without a job.
RankResult RunAlone(const std::vector<std::string>& flags);

// The output of --param-hash, e.g. "45 0123456789abcdef" (step and hash), or a
// text that says that there is none.
std::string ParamHash(const RankResult& result);

}  // namespace lockstep::worker::trainer

#endif  // LOCKSTEP_WORKER_TRAINER_TESTING_H_
