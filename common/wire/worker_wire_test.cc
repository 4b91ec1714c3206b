#include "common/wire/worker_wire.h"

#include <gmock/gmock.h>
#include <google/protobuf/unknown_field_set.h>
#include <gtest/gtest.h>

#include "common/model/limits.h"

namespace lockstep {
namespace {

using testing::HasSubstr;

// Through the bytes, as on the wire.
template <typename Proto, typename Model>
StatusOr<Model> Back(const Proto& proto, const Model&) {
  Proto copy;
  EXPECT_TRUE(copy.ParseFromString(proto.SerializeAsString()));
  return FromProto(copy);
}

template <typename Model>
void ExpectSurvives(const Model& value) {
  const auto back = Back(ToProto(value), value);
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_EQ(*back, value);
}

RankStatus ExitedRank() {
  RankStatus rank;
  rank.rank = 3;
  rank.local_rank = 1;
  rank.state = RankState::kExited;
  rank.pid = 4711;
  rank.exit = ExitStatus{ExitStatus::How::kSignal,
                         9,
                         "out of luck",
                         FromUnixNanos(1'700'000'000'123'456'789),
                         true,
                         true,
                         Reason::kDiverged};
  rank.progress = {7,
                   6,
                   100,
                   1.5,
                   640,
                   0.25,
                   1e-3,
                   {1, 2, 3, 4, 5, 6, 7, 8},
                   1 << 20,
                   14,
                   1,
                   2,
                   {{"accuracy", 0.9}},
                   "compute",
                   Straggler{3, 100, 90, 0.25},
                   4.5};
  rank.usage = {12.5, 1 << 20, 2 << 20, 0.5, 30, 1.75, 0.9, 5000};
  rank.restarts = 2;
  return rank;
}

ImageContent Content() {
  return {"registry/trainer:1", "sha256:" + std::string(64, 'a'),
          "sha256:" + std::string(64, 'b'), "host-a"};
}

GangStatus Gang() {
  GangStatus gang;
  gang.job = "mnist";
  gang.job_uid = "u-1";
  gang.generation = 4;
  gang.phase = GangPhase::kStopped;
  gang.refusal = {Reason::kPrepareRefused, "no such program"};
  gang.ports = {2222, 2223};
  gang.master_port = 2224;
  gang.ranks = {ExitedRank()};
  gang.checkpoint = Checkpoint{100, 4, "/out/ckpt-100",
                               FromUnixNanos(1'700'000'000'000'000'000), 77};
  gang.artifacts = {{"model", "/out/model"}};
  gang.events = {{1, 3, FromUnixNanos(5), Reason::kRankExit, "bye"}};
  gang.resumed_step = 50;
  gang.directive_done = 2;
  gang.preparations = {
      {{{"fetch", std::chrono::seconds(3)}}, "ports", "two of three"}};
  gang.service_ports = {{"jax", 2225}};
  gang.outputs = {{"model.keras", "keras", 77}};
  gang.images = {Content()};
  gang.reduction_plan = "lockstep-reduction-plan 1\nranks 2\n";
  gang.lost_peers = {{3, 1, "Connection timed out"}};
  gang.fence = Fence{std::chrono::minutes(4), true};
  return gang;
}

ClusterSpec Cluster() {
  ClusterSpec cluster;
  cluster.job = "mnist";
  cluster.job_uid = "u-1";
  cluster.generation = 4;
  cluster.world_size = 2;
  cluster.tasks = {{TaskType::kChief, 0, "a", "10.0.0.1:2222", {{0, 0, {1}}}},
                   {TaskType::kWorker, 0, "b", "10.0.0.2:2222", {{1, 0, {}}}},
                   {TaskType::kPs, 0, "b", "10.0.0.2:2223", {{2, 0, {}}}}};
  cluster.master_address = "10.0.0.1";
  cluster.master_port = 2224;
  cluster.services = {{"store", "10.0.0.9:1"}};
  cluster.environment_options.master_in_tf_config = true;
  cluster.environment_options.slurm_environment = true;
  cluster.environment_options.tf_config_job = "{}";
  cluster.environment_options.empty_tf_config = true;
  return cluster;
}

Assignment Launch() {
  Assignment a;
  a.job = "mnist";
  a.job_uid = "u-1";
  a.generation = 4;
  a.epoch = 2;
  a.goal = Goal::kLaunch;
  a.spec = GangSpec{
      JobKind::kNative,
      {{TaskType::kChief,
        0,
        {1, 2, 1, "T4"},
        {1},
        {"train", "--x"},
        {{"A", "b=c"}},
        {{0, 0, {1}, 1}},
        Container{"registry/trainer:1", {"python3"}},
        2}},
      "/out",
      {10, 2},
      {{3, 0}, {4, 20}},
      2,
      1,
      3,
      "/work",
      "user/a",
      {{"sha256:" + std::string(64, 'a'), 7, PackageFormat::kTree, "t.tar.gz"}},
      {"tf", "/opt/tf/bin/python3", true},
      {"HTTP_PROXY"},
      {"jax"},
      {Content()},
      "lockstep-reduction-plan 1\n",
      true};
  a.spec->known_checkpoint = Checkpoint{100, 3, "/out/ckpt-100", {}, 77};
  a.spec->restore = RestoreTarget{40};
  a.cluster = Cluster();
  a.job_key = std::string(32, '\xff');
  a.directives = {{1, DirectiveKind::kCheckpoint}, {2, DirectiveKind::kStop}};
  a.grace = std::chrono::seconds(30);
  a.stop_message = "why";
  return a;
}

TEST(WorkerWireTest, EveryMessageSurvivesTheWayThereAndBack) {
  Registration registration;
  registration.node = {"host-a",
                       {7, 9},
                       "boot",
                       "host-a.lan",
                       "0.1.0",
                       "::1",
                       "[::1]:9464",
                       {2, 1 << 30, 1, ""},
                       {{0, "GPU-1", "T4", 16}},
                       false,
                       "t4",
                       false,
                       "cgroup v1",
                       FromUnixNanos(1'800'000'000'000'000'000),
                       "podman 4.3.1"};
  registration.node.http_tls = true;
  registration.gangs = {Gang()};
  ExpectSurvives(registration);
  registration.obeyed = {std::string(kHistoryDigits, 'a'), 3, 7,
                         std::string(kHistoryDigits, 'c')};
  ExpectSurvives(registration);
  ExpectSurvives(Gang());
  ExpectSurvives(Launch());
  ExpectSurvives(WelcomeInfo{3, std::chrono::milliseconds(500),
                             std::chrono::seconds(3), "local"});
  ExpectSurvives(WelcomeInfo{3,
                             std::chrono::milliseconds(500),
                             std::chrono::seconds(3),
                             "local",
                             std::string(kHistoryDigits, 'a'),
                             {std::string(kHistoryDigits, 'b')},
                             std::string(kHistoryDigits, 'c')});
  ExpectSurvives(LogPiece{"mnist", "u-1", 4, 1, 1 << 20, "a\0b", true});
  ExpectSurvives(LogAckInfo{"mnist", 4, 1, 99, true});

  NodeHeartbeat beat;
  beat.sequence = 3;
  RankStatus rank;
  rank.rank = 3;
  rank.progress = ExitedRank().progress;
  rank.usage = ExitedRank().usage;
  beat.gangs = {{"mnist", 4, {rank}}};
  beat.readings.cpu_utilization = 0.5;
  beat.readings.memory_available_bytes = 1;
  GpuUsage gpu;
  gpu.index = 3;
  gpu.utilization = 0.9;
  gpu.memory_used_bytes = 5;
  gpu.uncorrected_errors = 2;
  gpu.remap_pending = true;
  gpu.remap_failed = false;
  gpu.pcie_width = 8;
  gpu.pcie_width_max = 16;
  gpu.nvlinks = 17;
  gpu.slowdown = "hw_thermal";
  beat.readings.gpus.push_back(gpu);
  beat.readings.send_time = FromUnixNanos(1'800'000'000'000'000'001);
  beat.readings.gpu_errors = {{3, 79}};
  beat.readings.round_trip = std::chrono::microseconds(1500);
  HeldProcess held{4711, "ann", "python", "D", "nv_wait", WallTime(), 5, "j"};
  held.since = FromUnixNanos(1'800'000'000'000'000'002);
  beat.readings.stuck_processes = {held};
  beat.readings.reclaims = {{3, held.since, 7, 5, {held}, "j"}};
  ExpectSurvives(beat);

  const RendezvousEntry entry{"mnist", 4, "rank/0", std::string("\0\1", 2)};
  EXPECT_EQ(FromProto(ToRendezvousPut(entry)).value(), entry);
  EXPECT_EQ(FromProto(ToRendezvousValue(entry)).value(), entry);
  EXPECT_EQ(FromProto(ToRendezvousGet(entry)).value().key, "rank/0");
}

TEST(WorkerWireTest, WhatToResumeFromIsAStepOrTheStart) {
  EXPECT_EQ(FromProto(ToProto(RestoreTarget{})).value(), RestoreTarget{});
  v1::RestoreTarget target;
  EXPECT_THAT(Message(FromProto(target).status()),
              HasSubstr("neither a step nor from_start"));
  target.set_from_start(false);
  EXPECT_THAT(Message(FromProto(target).status()), HasSubstr("from_start"));
  for (const int64_t step : {int64_t{0}, int64_t{-1}, INT64_MAX}) {
    target.set_step(step);
    EXPECT_THAT(Message(FromProto(target).status()), HasSubstr("restore.step"));
  }
}

TEST(WorkerWireTest, AReductionPlanIsTextOfABoundedSize) {
  v1::GangStatus status = ToProto(Gang());
  status.set_reduction_plan(std::string(kMaxReductionPlan, 'x'));
  EXPECT_TRUE(FromProto(status).ok());
  status.set_reduction_plan(std::string(kMaxReductionPlan + 1, 'x'));
  EXPECT_THAT(Message(FromProto(status).status()), HasSubstr("reduction_plan"));
  status.set_reduction_plan("\x1b[2J");
  EXPECT_THAT(Message(FromProto(status).status()), HasSubstr("reduction_plan"));
  v1::GangSpec spec = ToProto(*Launch().spec);
  spec.set_reduction_plan(std::string(kMaxReductionPlan + 1, 'x'));
  EXPECT_THAT(Message(FromProto(spec).status()), HasSubstr("reduction_plan"));
}

TEST(WorkerWireTest, WhatIsFetchedAheadSurvivesTheWayThereAndBack) {
  const std::string package = "sha256:" + std::string(64, 'c');
  ExpectSurvives(Prefetch{7,
                          {Content(), {"other:2", "", "", ""}},
                          {{package, 7, PackageFormat::kTree, "t.tar.gz"}}});
  Prefetched image;
  image.image = Content();
  image.content = Content();
  image.ready = image.fetched = true;
  image.duration = std::chrono::milliseconds(12'300);
  Prefetched failed;
  failed.package_digest = package;
  failed.error = "there is no room";
  ExpectSurvives(PrefetchReport{{image, failed}});
}

TEST(WorkerWireTest, WhatIsFetchedAheadMustMakeSense) {
  v1::Prefetch none;
  EXPECT_THAT(Message(FromProto(none).status()), HasSubstr("epoch"));
  none.set_epoch(1);
  ASSERT_TRUE(FromProto(none).ok());
  none.add_images()->set_image("docker-archive:/etc/passwd");
  EXPECT_THAT(Message(FromProto(none).status()), HasSubstr("images[0].image"));
  none.mutable_images(0)->set_image("a:1");
  none.mutable_images(0)->set_id("latest");
  EXPECT_THAT(Message(FromProto(none).status()), HasSubstr("images[0].id"));

  v1::PrefetchStatus status;
  v1::Prefetched* item = status.add_items();
  EXPECT_THAT(Message(FromProto(status).status()), HasSubstr("items[0].image"));
  item->mutable_image()->set_image("a:1");
  EXPECT_TRUE(FromProto(status).ok());
  item->set_ready(true);
  EXPECT_THAT(Message(FromProto(status).status()),
              HasSubstr("items[0].content"));
  item->mutable_content()->set_image("a:1");
  item->mutable_content()->set_id(Content().id);
  EXPECT_TRUE(FromProto(status).ok());
  item->set_package_digest(Content().id);
  EXPECT_THAT(Message(FromProto(status).status()), HasSubstr("items[0].image"));
  item->clear_image();
  item->set_package_digest("../x");
  EXPECT_THAT(Message(FromProto(status).status()),
              HasSubstr("items[0].package_digest"));
}

TEST(WorkerWireTest, GoalsNeedWhatTheyWorkOn) {
  v1::Assignment proto = ToProto(Launch());
  proto.clear_cluster();
  EXPECT_THAT(Message(FromProto(proto).status()), HasSubstr("cluster: is"));
  proto.set_goal(v1::GOAL_PREPARE);
  EXPECT_TRUE(FromProto(proto).ok());
  proto.clear_spec();
  EXPECT_THAT(Message(FromProto(proto).status()), HasSubstr("spec: is"));
  proto.set_goal(v1::GOAL_STOP);
  EXPECT_TRUE(FromProto(proto).ok());
  proto.set_job_key("short");
  EXPECT_FALSE(FromProto(proto).ok());
}

TEST(WorkerWireTest, AClusterSpecOfAnotherGenerationIsRefused) {
  v1::Assignment proto = ToProto(Launch());
  ClusterSpec other = Cluster();
  other.generation = 5;
  proto.set_cluster(EncodeClusterSpec(other));
  EXPECT_THAT(Message(FromProto(proto).status()), HasSubstr("of another job"));
}

TEST(WorkerWireTest, BytesThatAreNoClusterSpecAreRefused) {
  v1::Assignment proto = ToProto(Launch());
  const std::string whole = proto.cluster();
  // Cut short, noise, and a name that is no UTF-8.
  for (const std::string& bytes :
       {whole.substr(0, whole.size() - 1), std::string("\xff\xff", 2),
        std::string("\x0a\x01\xff", 3)}) {
    proto.set_cluster(bytes);
    const Status status = FromProto(proto).status();
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    EXPECT_EQ(Message(status),
              fmt::format("assignment.cluster: {} bytes are no encoded "
                          "ClusterSpec",
                          bytes.size()));
  }
  // What can be read is held to the same limits as ever.
  ClusterSpec wrong = Cluster();
  wrong.world_size = 0;
  proto.set_cluster(EncodeClusterSpec(wrong));
  EXPECT_THAT(Message(FromProto(proto).status()),
              HasSubstr("assignment.cluster.world_size"));
}

// Daemons and their records of before know it as a field of that type.
TEST(WorkerWireTest, AnEncodedClusterSpecIsOnTheWireAsAMessageIs) {
  v1::Assignment proto;
  proto.set_cluster(EncodeClusterSpec(Cluster()));
  google::protobuf::UnknownFieldSet fields;
  ASSERT_TRUE(fields.ParseFromString(proto.SerializeAsString()));
  ASSERT_EQ(fields.field_count(), 1);
  EXPECT_EQ(fields.field(0).number(), 7);
  ASSERT_EQ(fields.field(0).type(),
            google::protobuf::UnknownField::TYPE_LENGTH_DELIMITED);
  v1::ClusterSpec message;
  ASSERT_TRUE(message.ParseFromString(fields.field(0).length_delimited()));
  EXPECT_EQ(FromProto(message).value(), Cluster());
}

TEST(WorkerWireTest, RanksOfAClusterSpecAreNumberedOnceWithoutGaps) {
  v1::ClusterSpec proto = ToProto(Cluster());
  proto.mutable_tasks(1)->mutable_ranks(0)->set_rank(0);
  EXPECT_THAT(Message(FromProto(proto).status()), HasSubstr("twice"));
  proto = ToProto(Cluster());
  proto.mutable_tasks(2)->mutable_ranks(0)->set_rank(9);
  EXPECT_THAT(Message(FromProto(proto).status()), HasSubstr("gaps"));
  proto = ToProto(Cluster());
  proto.set_world_size(3);
  EXPECT_THAT(Message(FromProto(proto).status()), HasSubstr("world_size"));
}

TEST(WorkerWireTest, AnExitedRankMustSayHow) {
  v1::GangStatus proto = ToProto(Gang());
  proto.mutable_ranks(0)->clear_exit();
  EXPECT_THAT(Message(FromProto(proto).status()), HasSubstr("exit: is"));
  proto.mutable_ranks(0)->mutable_exit();
  EXPECT_THAT(Message(FromProto(proto).status()), HasSubstr("neither code"));
}

}  // namespace
}  // namespace lockstep
