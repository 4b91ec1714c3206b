#include "server/store/record.h"

#include <gmock/gmock.h>
#include <google/protobuf/stubs/logging.h>
#include <gtest/gtest.h>

#include <csignal>
#include <limits>
#include <random>

#include "common/wire/job_wire.h"
#include "server/core/testing.h"
#include "server/store/testing.h"

namespace lockstep::server {
namespace {

using testing::HasSubstr;

TEST(RecordTest, EveryFieldOfAJobComesBack) {
  const Job job = FullJob();
  const auto again = ReadAgain(job);
  ASSERT_TRUE(again.ok()) << Message(again.status());
  EXPECT_EQ(again->spec, job.spec);
  EXPECT_EQ(again->tasks, job.tasks);
  EXPECT_EQ(again->attempts, job.attempts);
  EXPECT_EQ(again->events, job.events);
  EXPECT_EQ(again->phase_durations, job.phase_durations);
  EXPECT_EQ(again->cluster, job.cluster);
  EXPECT_EQ(again->holds, job.holds);
  EXPECT_EQ(again->lone_ranks, job.lone_ranks);
  EXPECT_EQ(*again, job);
  const auto old = DecodeJobOfSchema4(RecordOfSchema4(job));
  ASSERT_TRUE(old.ok()) << Message(old.status());
  EXPECT_EQ(*old, job);
}

// A field that somebody adds to Job and forgets here would compare equal
// only because both sides have its default.
TEST(RecordTest, TheFullJobIsFull) {
  const Job job = FullJob();
  const Job empty;
  EXPECT_NE(job.spec, empty.spec);
  EXPECT_NE(job.uid, empty.uid);
  EXPECT_NE(job.owner, empty.owner);
  EXPECT_NE(job.resource_version, empty.resource_version);
  EXPECT_NE(job.exit_code, empty.exit_code);
  EXPECT_NE(job.bill, empty.bill);
  EXPECT_NE(job.attempt_start, empty.attempt_start);
  EXPECT_NE(job.committed_before, empty.committed_before);
  EXPECT_NE(job.next_directive, empty.next_directive);
  EXPECT_NE(job.failed_formings, empty.failed_formings);
  EXPECT_NE(job.failure_signature, empty.failure_signature);
  EXPECT_NE(job.output_identity, empty.output_identity);
  EXPECT_TRUE(job.cancel_requested);
  EXPECT_FALSE(job.images.empty() || job.artifacts.empty() ||
               job.lineage.empty() || job.directives.empty() ||
               job.event_numbers.empty() || job.free_restarts.empty() ||
               job.uncharged_failures.empty());
  EXPECT_TRUE(job.start_time && job.end_time && job.last_checkpoint &&
              job.committed_step && job.cluster && job.failing && job.outcome &&
              job.not_before.has_value());
}

TEST(RecordTest, JobsOfEveryStateComeBack) {
  Scene s(NativeSpec("j", 2));
  const auto check = [&] {
    const auto again = ReadAgain(s.job);
    ASSERT_TRUE(again.ok()) << Message(again.status());
    EXPECT_EQ(*again, s.job) << Name(s.job.state);
  };
  check();
  s.Put({"a", "b"});
  check();
  s.Prepared();
  s.Settle();
  check();
  s.Started();
  s.Joined();
  s.Settle();
  check();
  s.Exited(0, Code(3));
  s.Settle();
  check();
  s.AllStopped();
  s.Settle();
  check();
  s.job = Cancel(s.job, "user/ann", s.now);
  s.Settle();
  check();
  s.AllStopped();
  s.Settle();
  EXPECT_EQ(s.job.state, JobState::kCancelled);
  check();
}

// The longest that a node may say must not make the job unreadable.
TEST(RecordTest, LongestSentencesOfNodesStayReadable) {
  Scene s(NativeSpec("j", 2));
  s.Run({"a", "b"});
  ExitStatus exit = Code(1);
  exit.message.assign(8192, 'x');
  s.Gang("a").events.push_back(
      {1, 0, s.now.wall, Reason::kNone, std::string(8192, 'y')});
  s.Exited(1, exit);
  s.Settle();
  s.AllStopped();
  s.Settle();
  s.Prepared();
  s.Refused("b", {Reason::kPrepareRefused, std::string(8192, 'z')});
  s.Settle();
  s.AllStopped();
  s.Settle();
  EXPECT_EQ(s.job.state, JobState::kFailed);
  const auto again = ReadAgain(s.job);
  ASSERT_TRUE(again.ok()) << Message(again.status());
  EXPECT_EQ(*again, s.job);
}

TEST(RecordTest, NodesAndRequestsComeBack) {
  const NodeRecord node = FullNode();
  const auto node_again = DecodeNode(EncodeNode(node));
  ASSERT_TRUE(node_again.ok()) << Message(node_again.status());
  EXPECT_EQ(*node_again, node);

  const AnsweredRequest request = FullRequest();
  const auto again = DecodeRequest(EncodeRequest(request));
  ASSERT_TRUE(again.ok()) << Message(again.status());
  EXPECT_EQ(again->client, request.client);
  EXPECT_EQ(again->id, request.id);
  EXPECT_EQ(again->method, request.method);
  EXPECT_EQ(again->content_hash, request.content_hash);
  EXPECT_EQ(again->response, request.response);
  EXPECT_EQ(again->time, request.time);
}

// Each value is beyond a limit of what comes in: a coordinator that tightened
// its limits reads what it took before.
TEST(RecordTest, StoredValuesAreReadWithoutTheLimitsOfTheInput) {
  Job job = FullJob();
  job.spec.name = std::string(200, 'n');
  job.spec.comment = std::string(100'000, 'c');
  job.spec.priority = 5000;
  job.spec.labels["Not A Label"] = "x";
  job.spec.output_directory = "relative/../path";
  job.spec.max_running_time = std::chrono::hours(24 * 365 * 100);
  job.spec.environment.Edit()["RANK"] = "1";
  job.spec.roles.Edit()[0].environment["not a name"] = "1";
  job.cause.message = std::string(1 << 20, 'm');
  const auto again = ReadAgain(job);
  ASSERT_TRUE(again.ok()) << Message(again.status());
  EXPECT_EQ(*again, job);
  EXPECT_FALSE(FromProto(ToProto(job.spec)).ok()) << "not for what comes in";

  NodeRecord node = FullNode();
  node.info.name = std::string(200, 'N');
  node.info.capacity.gpus = 1 << 20;
  node.info.hostname = std::string(100'000, 'h');
  const auto node_again = DecodeNode(EncodeNode(node));
  ASSERT_TRUE(node_again.ok()) << Message(node_again.status());
  EXPECT_EQ(*node_again, node);
}

TEST(RecordTest, ValuesWithoutAMeaningAreDamage) {
  Job job = FullJob();
  job.spec.name.clear();
  EXPECT_EQ(ReadAgain(job).status().code(), StatusCode::kDataLoss);

  job = FullJob();
  job.spec.roles.Edit()[0].resources.cpus =
      std::numeric_limits<double>::quiet_NaN();
  EXPECT_EQ(ReadAgain(job).status().code(), StatusCode::kDataLoss);

  job = FullJob();
  job.tasks[0].ranks[0].state = RankState::kExited;
  job.tasks[0].ranks[0].exit.reset();
  EXPECT_EQ(ReadAgain(job).status().code(), StatusCode::kDataLoss);
}

TEST(RecordTest, SumsOfStoredRolesDoNotOverflow) {
  Job job = FullJob();
  RoleSpec role = job.spec.roles.Edit()[0];
  role.count = role.ranks_per_task = std::numeric_limits<int32_t>::max();
  job.spec.roles.Edit() = {role, role, role};
  const auto again = ReadAgain(job);
  ASSERT_TRUE(again.ok()) << Message(again.status());
  EXPECT_EQ(again->spec.roles, job.spec.roles);
}

TEST(RecordTest, NoBytesAreNoJob) {
  const auto job = DecodeJob(v1::StoredJob());
  EXPECT_EQ(job.status().code(), StatusCode::kDataLoss);
  EXPECT_THAT(Message(job.status()), HasSubstr("damaged"));
  v1::StoredJob merged;
  for (const JobTable table : kAllJobTables) {
    EXPECT_EQ(AddRow(table, "\xff\xff", &merged).code(), StatusCode::kDataLoss);
  }
  EXPECT_EQ(DecodeJobOfSchema4("\xff\xff").status().code(),
            StatusCode::kDataLoss);
  EXPECT_EQ(DecodeNode("\xff").status().code(), StatusCode::kDataLoss);
  EXPECT_EQ(DecodeNode("").status().code(), StatusCode::kDataLoss);
}

TEST(RecordTest, RandomBytesNeverCrash) {
  const google::protobuf::LogSilencer silence;
  std::mt19937 random(3);
  for (int i = 0; i < 20000; ++i) {
    std::string bytes(random() % 200, '\0');
    for (char& c : bytes) c = static_cast<char>(random());
    v1::StoredJob merged;
    for (const JobTable table : kAllJobTables) {
      (void)AddRow(table, bytes, &merged);
    }
    for (const Status& status :
         {DecodeJob(merged).status(), DecodeJobOfSchema4(bytes).status(),
          DecodeNode(bytes).status()}) {
      ASSERT_TRUE(status.ok() || status.code() == StatusCode::kDataLoss)
          << status.ToString();
    }
    (void)DecodeRequest(bytes);
  }
}

TEST(RecordTest, FlippedBytesAreReadOrRefusedButNeverCrash) {
  const google::protobuf::LogSilencer silence;
  std::mt19937 random(4);
  const std::string good = RecordOfSchema4(FullJob());
  for (int i = 0; i < 5000; ++i) {
    std::string bytes = good;
    for (int flips = 1 + static_cast<int>(random() % 3); flips > 0; --flips) {
      bytes[random() % bytes.size()] = static_cast<char>(random());
    }
    if (random() % 4 == 0) bytes.resize(random() % bytes.size());
    const auto job = DecodeJobOfSchema4(bytes);
    ASSERT_TRUE(job.ok() || job.status().code() == StatusCode::kDataLoss);
    // What can be read can be written again.
    if (job.ok()) {
      ASSERT_TRUE(ReadAgain(*job).ok());
    }
  }
}

}  // namespace
}  // namespace lockstep::server
