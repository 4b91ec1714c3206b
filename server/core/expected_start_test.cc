#include "server/core/expected_start.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <optional>

#include "server/core/scenes.h"

namespace lockstep::server {
namespace {

using std::chrono_literals::operator""min;
using testing::ElementsAre;
using testing::IsEmpty;
using testing::Pair;

class ExpectedStartTest : public testing::Test {
 protected:
  void Add(const JobName& name, int64_t age, double cpus,
           std::optional<Duration> limit = std::nullopt, int32_t gpus = 0) {
    auto job = std::make_unique<Job>();
    job->spec =
        ProgramSpec(name, {Role(TaskType::kChief, 1, {cpus, 0, gpus, ""})});
    job->spec.max_running_time = limit;
    job->create_time = FromUnixNanos(1'000'000'000 * (1000 - age));
    queue_.push_back({job.get(), Duration{}, false});
    jobs_.push_back(std::move(job));
  }
  // A job that holds `cpus` of the only host; `end` nullopt: for good.
  void Run(double cpus, std::optional<Duration> end) {
    hosts_[0].allocated.cpus += cpus;
    if (!end) return;
    Hold hold;
    hold.node = "a";
    hold.resources.cpus = cpus;
    ends_.push_back({now_ + *end, {hold}});
  }
  std::map<JobName, WallTime> Starts() const {
    return ExpectStarts(queue_, hosts_, ends_, {}, now_);
  }

  const WallTime now_{std::chrono::hours(1000)};
  std::vector<std::unique_ptr<Job>> jobs_;
  std::vector<QueuedJob> queue_;
  std::vector<HostCapacity> hosts_ = {Host("a", 4)};
  std::vector<ExpectedEnd> ends_;
};

TEST_F(ExpectedStartTest, AJobStartsWhenEnoughHasEnded) {
  Run(2, 30min);
  Run(2, 10min);
  Add("small", 2, 2);
  Add("large", 1, 4);
  EXPECT_THAT(Starts(), ElementsAre(Pair("small", now_ + 10min)))
      << "the small one has no limit, so the large one never fits";
  jobs_[0]->spec.max_running_time = 60min;
  EXPECT_THAT(Starts(), ElementsAre(Pair("large", now_ + 70min),
                                    Pair("small", now_ + 10min)));
}

TEST_F(ExpectedStartTest, OneJobAfterTheOther) {
  Run(4, 10min);
  Add("first", 3, 4, 20min);
  Add("second", 2, 4, 20min);
  Add("third", 1, 4);
  EXPECT_THAT(Starts(), ElementsAre(Pair("first", now_ + 10min),
                                    Pair("second", now_ + 30min),
                                    Pair("third", now_ + 50min)));
}

TEST_F(ExpectedStartTest, WhatHoldsForGoodIsNotWaitedFor) {
  Run(3, std::nullopt);
  Run(1, 10min);
  Add("large", 2, 4);
  Add("small", 1, 1);
  // Smaller jobs pass the large one until it has waited too long, and it is
  // never placed.
  const auto starts = Starts();
  EXPECT_FALSE(starts.contains("large"));
}

TEST_F(ExpectedStartTest, AnEndThatIsLateIsSoon) {
  Run(4, -5min);
  Add("next", 1, 4);
  EXPECT_THAT(Starts(), ElementsAre(Pair("next", now_)));
}

TEST_F(ExpectedStartTest, ItsGpusAreFreeThen) {
  hosts_ = {Host("a", 4)};
  hosts_[0].capacity.gpus = 2;
  for (const int32_t index : {0, 1}) {
    Gpu gpu;
    gpu.index = index;
    hosts_[0].gpus.push_back(gpu);
  }
  hosts_[0].allocated.gpus = 2;
  hosts_[0].allocated_gpus = {0, 1};
  Hold hold;
  hold.node = "a";
  hold.resources.gpus = 1;
  hold.gpus = {1};
  ends_.push_back({now_ + 10min, {hold}});
  Add("one", 2, 1, std::nullopt, 1);
  Add("two", 1, 1, std::nullopt, 2);
  EXPECT_THAT(Starts(), ElementsAre(Pair("one", now_ + 10min)));
}

TEST_F(ExpectedStartTest, AJobThatBacksOffHasNone) {
  Run(4, 10min);
  Add("failed", 1, 4);
  queue_[0].backing_off = true;
  EXPECT_THAT(Starts(), IsEmpty());
}

}  // namespace
}  // namespace lockstep::server
