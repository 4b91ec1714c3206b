#include "server/store/job_rows.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <utility>

#include "server/store/testing.h"

namespace lockstep::server {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::SizeIs;

// What a store does with the changes, in memory.
class JobRowsTest : public testing::Test {
 protected:
  JobChanges Commit(const Job& job) {
    const bool known = version_.job != nullptr;
    JobChanges changes = ChangesOf(known ? &version_ : nullptr, job);
    for (const JobRowName& row : changes.removed) {
      EXPECT_EQ(rows_.erase({row.table, row.number}), 1u) << Name(row.table);
    }
    for (const JobRow& row : changes.written) {
      EXPECT_EQ(rows_.contains({row.table, row.number}), !row.is_new)
          << Name(row.table) << " " << row.number;
      rows_[{row.table, row.number}] = row.record;
    }
    version_ = {std::make_shared<const Job>(job), changes.numbers};
    return changes;
  }
  StatusOr<Job> Read() const {
    v1::StoredJob merged;
    for (const auto& [name, record] : rows_) {
      LOCKSTEP_RETURN_IF_ERROR(AddRow(name.first, record, &merged));
    }
    return DecodeJob(merged);
  }
  void ExpectStored(const Job& job) {
    const auto again = Read();
    ASSERT_TRUE(again.ok()) << Message(again.status());
    EXPECT_EQ(*again, job);
  }
  static std::vector<std::pair<JobTable, int64_t>> Written(
      const JobChanges& changes) {
    std::vector<std::pair<JobTable, int64_t>> names;
    for (const JobRow& row : changes.written) {
      names.emplace_back(row.table, row.number);
    }
    return names;
  }
  static size_t Bytes(const JobChanges& changes) {
    size_t bytes = 0;
    for (const JobRow& row : changes.written) bytes += row.record.size();
    return bytes;
  }

  const std::pair<JobTable, int64_t> state_ = {JobTable::kJobs, 0};
  StoredVersion version_;
  std::map<std::pair<JobTable, int64_t>, std::string> rows_;
};

TEST_F(JobRowsTest, ANewJobIsWrittenAsAWhole) {
  const Job job = FullJob();
  const JobChanges changes = Commit(job);
  EXPECT_THAT(changes.written,
              SizeIs(4 + job.tasks.size() + job.attempts.size() +
                     job.events.size() + job.holds.size()));
  ExpectStored(job);
}

TEST_F(JobRowsTest, AReportOfOneTaskWritesItsRowAndTheState) {
  Job job = WideJob(2048);
  const size_t all = Bytes(Commit(job));
  job.resource_version = 78;
  job.tasks[1000].ranks[0].pid = 77;
  const JobChanges changes = Commit(job);
  EXPECT_THAT(Written(changes),
              ElementsAre(state_, std::pair(JobTable::kTasks, 1000)));
  EXPECT_THAT(changes.removed, IsEmpty());
  EXPECT_LT(Bytes(changes) * 500, all);
  ExpectStored(job);
}

TEST_F(JobRowsTest, PartsAreWrittenWhenTheyChange) {
  Job job = FullJob();
  Commit(job);
  EXPECT_THAT(Written(Commit(job)), ElementsAre(state_));
  job.spec.labels["a"] = "b";
  EXPECT_THAT(Written(Commit(job)),
              ElementsAre(state_, std::pair(JobTable::kJobs, 1)));
  job.training.Edit()->job_id = "another";
  EXPECT_THAT(Written(Commit(job)),
              ElementsAre(state_, std::pair(JobTable::kJobs, 1)));
  job.cluster->master_port = 1;
  EXPECT_THAT(Written(Commit(job)),
              ElementsAre(state_, std::pair(JobTable::kJobs, 2)));
  job.reduction_plan += "more\n";
  EXPECT_THAT(Written(Commit(job)),
              ElementsAre(state_, std::pair(JobTable::kJobs, 3)));
  job.cluster.reset();
  job.reduction_plan.clear();
  EXPECT_THAT(Commit(job).removed, SizeIs(2));
  EXPECT_THAT(rows_, testing::Not(testing::Contains(testing::Key(
                         std::pair(JobTable::kJobs, int64_t{2})))));
  ExpectStored(job);
  job.cluster = FullJob().cluster;
  Commit(job);
  ExpectStored(job);
}

// The oldest but for the first go: their neighbours' rows stay as they are.
TEST_F(JobRowsTest, AnEventOfALongHistoryIsOneRow) {
  Job job = FullJob();
  Time now;
  for (size_t i = 0; i < kMaxEvents; ++i) {
    AddEvent(&job, Reason::kNone, fmt::format("event {}", i), now);
  }
  ASSERT_THAT(job.events, SizeIs(kMaxEvents));
  Commit(job);
  for (int i = 0; i < 500; ++i) {
    AddEvent(&job, Reason::kNone, fmt::format("later event {}", i), now);
    const JobChanges changes = Commit(job);
    ASSERT_THAT(changes.written, SizeIs(2));
    ASSERT_THAT(changes.removed, SizeIs(1));
  }
  ExpectStored(job);
}

TEST_F(JobRowsTest, AReleasedHoldRemovesItsRowAlone) {
  Job job = WideJob(64);
  Commit(job);
  job.holds.erase(job.holds.begin() + 10);
  const JobChanges changes = Commit(job);
  EXPECT_THAT(changes.written, SizeIs(1));
  ASSERT_THAT(changes.removed, SizeIs(1));
  EXPECT_EQ(changes.removed[0].table, JobTable::kHolds);
  EXPECT_EQ(changes.removed[0].number, 10);
  ExpectStored(job);
}

using Random = std::mt19937;

size_t Pick(size_t n, Random* random) { return (*random)() % n; }

template <typename T>
void Remove(std::vector<T>* values, Random* random) {
  if (values->empty()) return;
  values->erase(values->begin() +
                static_cast<ptrdiff_t>(Pick(values->size(), random)));
}
template <typename T>
void Insert(std::vector<T>* values, T value, Random* random) {
  values->insert(values->begin() +
                     static_cast<ptrdiff_t>(Pick(values->size() + 1, random)),
                 std::move(value));
}

// One change of something that has rows, also where no coordinator makes one.
void Change(Job* job, int step, Random* random) {
  const Job full = FullJob();
  const size_t wide = 1 + Pick(9, random);
  switch (Pick(14, random)) {
    case 0:
      job->tasks.clear();
      break;
    case 1:
      job->tasks = WideJob(static_cast<int>(wide)).tasks;
      break;
    case 2:
      if (!job->tasks.empty()) {
        job->tasks[Pick(job->tasks.size(), random)].address =
            std::to_string(step);
      }
      break;
    case 3:
      Remove(&job->tasks, random);
      break;
    case 4:
      std::shuffle(job->tasks.begin(), job->tasks.end(), *random);
      break;
    case 5:
      job->attempts.push_back(full.attempts[0]);
      job->attempts.back().ordinal = step;
      break;
    case 6:
      Remove(&job->attempts, random);
      break;
    case 7:
      AddEvent(job, Reason::kNone, std::to_string(Pick(3, random)), {});
      break;
    case 8:
      Insert(&job->events, full.events[Pick(2, random)], random);
      break;
    case 9:
      Remove(&job->events, random);
      break;
    case 10:
      Insert(&job->holds,
             {std::to_string(Pick(9, random)), 7, {}, {}, WallTime{}}, random);
      break;
    case 11:
      Remove(&job->holds, random);
      break;
    case 12:
      job->cluster = Pick(2, random) == 0 ? full.cluster : std::nullopt;
      break;
    default:
      job->reduction_plan = Pick(2, random) == 0 ? "" : std::to_string(step);
  }
}

TEST_F(JobRowsTest, RowsAreTheJobWhateverChanges) {
  Random random(7);
  Job job = FullJob();
  for (int step = 0; step < 3000; ++step) {
    for (size_t changes = Pick(4, &random); changes > 0; --changes) {
      Change(&job, step, &random);
    }
    Commit(job);
    ExpectStored(job);
    ASSERT_FALSE(HasFailure()) << "step " << step;
  }
}

}  // namespace
}  // namespace lockstep::server
