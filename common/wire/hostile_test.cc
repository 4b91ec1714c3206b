// Numbers and names that no honest peer sends: each is refused by name, and
// none crashes, overflows or is copied whole into an error.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>

#include "common/wire/job_wire.h"
#include "common/wire/worker_wire.h"

namespace lockstep {
namespace {

using testing::HasSubstr;

const double kNan = std::numeric_limits<double>::quiet_NaN();
const double kInf = std::numeric_limits<double>::infinity();

v1::JobSpec ValidSpec() {
  v1::JobSpec spec;
  spec.set_name("mnist");
  spec.set_kind(v1::JOB_KIND_PROGRAM);
  spec.add_argv("train");
  spec.add_roles()->set_type(v1::TASK_TYPE_WORKER);
  spec.mutable_roles(0)->set_count(1);
  return spec;
}

struct SpecCase {
  const char* field;
  std::function<void(v1::JobSpec*)> change;
};

TEST(HostileTest, JobSpecs) {
  const std::string nul("a\0b", 3);
  const std::vector<SpecCase> cases = {
      {"name", [](auto* s) { s->set_name(""); }},
      {"name", [](auto* s) { s->set_name(std::string(10 << 20, 'a')); }},
      {"name", [&](auto* s) { s->set_name(nul); }},
      {"name", [](auto* s) { s->set_name("a\n"); }},
      {"name", [](auto* s) { s->set_name("%s%n"); }},
      {"name", [](auto* s) { s->set_name("../../etc/passwd"); }},
      {"name", [](auto* s) { s->set_name("a/b"); }},
      {"kind", [](auto* s) { s->set_kind(v1::JOB_KIND_UNSPECIFIED); }},
      {"kind", [](auto* s) { s->set_kind(static_cast<v1::JobKind>(77)); }},
      {"roles", [](auto* s) { s->clear_roles(); }},
      {"roles",
       [](auto* s) {
         for (int i = 0; i < 1000; ++i) *s->add_roles() = s->roles(0);
       }},
      {"roles[0].type",
       [](auto* s) { s->mutable_roles(0)->set_type(v1::TaskType(-5)); }},
      {"roles[0].count", [](auto* s) { s->mutable_roles(0)->set_count(0); }},
      {"roles[0].count", [](auto* s) { s->mutable_roles(0)->set_count(-1); }},
      {"roles[0].count",
       [](auto* s) { s->mutable_roles(0)->set_count(INT32_MAX); }},
      {"roles[0].count",
       [](auto* s) { s->mutable_roles(0)->set_count(INT32_MIN); }},
      {"roles",
       [](auto* s) {
         s->mutable_roles(0)->set_count(65536);
         s->mutable_roles(0)->set_ranks_per_task(65536);
       }},
      {"roles[0].ranks_per_task",
       [](auto* s) { s->mutable_roles(0)->set_ranks_per_task(-1); }},
      {"roles[0].resources.cpus",
       [](auto* s) {
         s->mutable_roles(0)->mutable_resources()->set_cpus(kNan);
       }},
      {"roles[0].resources.cpus",
       [](auto* s) {
         s->mutable_roles(0)->mutable_resources()->set_cpus(kInf);
       }},
      {"roles[0].resources.cpus",
       [](auto* s) {
         s->mutable_roles(0)->mutable_resources()->set_cpus(1e308);
       }},
      {"roles[0].resources.memory_bytes",
       [](auto* s) {
         s->mutable_roles(0)->mutable_resources()->set_memory_bytes(INT64_MAX);
       }},
      {"roles[0].resources.gpus",
       [](auto* s) { s->mutable_roles(0)->mutable_resources()->set_gpus(-1); }},
      {"roles[0].resources.gpu_type",
       [](auto* s) {
         s->mutable_roles(0)->mutable_resources()->set_gpu_type("T4");
       }},
      {"argv", [](auto* s) { s->set_argv(0, ""); }},
      {"argv[0]", [&](auto* s) { s->set_argv(0, nul); }},
      {"argv",
       [](auto* s) {
         for (int i = 0; i < 20000; ++i) s->add_argv("a");
       }},
      {"argv",
       [](auto* s) {
         for (int i = 0; i < 9; ++i) s->add_argv(std::string(130'000, 'a'));
       }},
      {"environment.A",
       [&](auto* s) { (*s->mutable_environment())["A"] = nul; }},
      {"environment", [](auto* s) { (*s->mutable_environment())["A=B"]; }},
      {"environment", [](auto* s) { (*s->mutable_environment())[""]; }},
      {"environment",
       [](auto* s) {
         (*s->mutable_environment())[std::string(10 << 20, 'A')];
       }},
      {"output_directory", [](auto* s) { s->set_output_directory("a"); }},
      {"output_directory", [](auto* s) { s->set_output_directory("/a/../b"); }},
      {"output_directory",
       [&](auto* s) { s->set_output_directory("/" + nul); }},
      {"output_directory",
       [](auto* s) { s->set_output_directory("/" + std::string(5000, 'a')); }},
      {"working_directory", [](auto* s) { s->set_working_directory("~"); }},
      {"checkpoint.interval_steps",
       [](auto* s) { s->mutable_checkpoint()->set_interval_steps(-1); }},
      {"checkpoint.keep",
       [](auto* s) { s->mutable_checkpoint()->set_keep(INT32_MIN); }},
      {"restart_budget", [](auto* s) { s->set_restart_budget(-1); }},
      {"max_running_time",
       [](auto* s) { s->mutable_max_running_time()->set_seconds(INT64_MAX); }},
      {"max_running_time",
       [](auto* s) { s->mutable_max_running_time()->set_seconds(INT64_MIN); }},
      {"max_running_time",
       [](auto* s) { s->mutable_max_running_time()->set_nanos(-1); }},
      {"max_wait_time",
       [](auto* s) { s->mutable_max_wait_time()->set_nanos(INT32_MAX); }},
      {"priority", [](auto* s) { s->set_priority(-1); }},
      {"priority", [](auto* s) { s->set_priority(1001); }},
      {"labels", [](auto* s) { (*s->mutable_labels())["A"] = "b"; }},
      {"labels", [](auto* s) { (*s->mutable_labels())["a"] = "b c"; }},
      {"labels",
       [](auto* s) {
         for (int i = 0; i < 65; ++i) (*s->mutable_labels())[std::to_string(i)];
       }},
      {"comment", [](auto* s) { s->set_comment(std::string(10 << 20, 'x')); }},
      {"comment", [](auto* s) { s->set_comment("\x1b[2J"); }},
  };
  ASSERT_TRUE(FromProto(ValidSpec()).ok());
  for (size_t i = 0; i < cases.size(); ++i) {
    v1::JobSpec spec = ValidSpec();
    cases[i].change(&spec);
    const auto parsed = FromProto(spec);
    ASSERT_FALSE(parsed.ok()) << "case " << i << ": " << cases[i].field;
    const std::string text = Message(parsed.status());
    EXPECT_EQ(text.rfind(std::string("spec.") + cases[i].field, 0), 0u)
        << "case " << i << ": " << text;
    EXPECT_LT(text.size(), 700u);
    for (const char c : text) {
      EXPECT_TRUE(c >= 0x20 && c < 0x7f) << "case " << i << ": " << text;
    }
  }
}

TEST(HostileTest, WorldSizes) {
  for (const int32_t size : {0, -1, INT32_MIN, INT32_MAX, 65537}) {
    v1::ClusterSpec proto;
    proto.set_job("a");
    proto.set_world_size(size);
    const auto parsed = FromProto(proto);
    ASSERT_FALSE(parsed.ok());
    EXPECT_THAT(Message(parsed.status()), HasSubstr("cluster.world_size"));
  }
}

TEST(HostileTest, ProgressOfARank) {
  using Change = std::function<void(v1::RankProgress*)>;
  const std::vector<Change> changes = {
      [](auto* p) { p->set_step(-2); },
      [](auto* p) { p->set_step(INT64_MAX); },
      [](auto* p) { p->set_loss(kNan); },
      [](auto* p) { p->set_loss(kInf); },
      [](auto* p) { p->set_loss(1e308); },
      [](auto* p) { p->mutable_phases()->set_compute(-1); },
      [](auto* p) { p->mutable_phases()->set_other(kNan); },
      [](auto* p) { p->set_samples(-1); },
      [](auto* p) { (*p->mutable_values())["a"] = kNan; },
      [](auto* p) { (*p->mutable_values())["a\n\x01"] = 1; },
      [](auto* p) {
        for (int i = 0; i < 65; ++i) (*p->mutable_values())[std::to_string(i)];
      },
      [](auto* p) { p->set_phase(std::string(1 << 20, 'x')); },
      [](auto* p) { p->set_allreduce_busy_seconds(kNan); },
      [](auto* p) { p->set_allreduce_busy_seconds(-1); },
      [](auto* p) { p->mutable_straggler()->set_steps(0); },
      [](auto* p) { p->mutable_straggler()->set_steps(101); },
      [](auto* p) {
        p->mutable_straggler()->set_steps(10);
        p->mutable_straggler()->set_late_steps(11);
      },
      [](auto* p) {
        p->mutable_straggler()->set_steps(10);
        p->mutable_straggler()->set_rank(-1);
      },
      [](auto* p) {
        p->mutable_straggler()->set_steps(10);
        p->mutable_straggler()->set_cost(1.5);
      },
  };
  ASSERT_TRUE(FromProto(v1::RankProgress()).ok());
  for (size_t i = 0; i < changes.size(); ++i) {
    v1::RankProgress proto;
    changes[i](&proto);
    EXPECT_FALSE(FromProto(proto).ok()) << "case " << i;
  }
}

TEST(HostileTest, Registrations) {
  v1::Register valid;
  valid.set_node("a");
  valid.mutable_incarnation()->set_counter(1);
  valid.set_address("10.0.0.1");
  ASSERT_TRUE(FromProto(valid).ok()) << FromProto(valid).status();
  using Change = std::function<void(v1::Register*)>;
  const std::vector<std::pair<std::string, Change>> cases = {
      {"node", [](auto* r) { r->set_node("A"); }},
      {"node", [](auto* r) { r->set_node("../x"); }},
      {"incarnation", [](auto* r) { r->clear_incarnation(); }},
      {"address", [](auto* r) { r->set_address("host"); }},
      {"address", [](auto* r) { r->set_address("1.2.3.4\n"); }},
      {"address", [](auto* r) { r->set_address(std::string("::1\0x", 5)); }},
      {"http_address", [](auto* r) { r->set_http_address("nope"); }},
      {"capacity.cpus", [](auto* r) { r->mutable_capacity()->set_cpus(kNan); }},
      {"gpus[0].index", [](auto* r) { r->add_gpus()->set_index(-1); }},
      {"gangs[0].job", [](auto* r) { r->add_gangs()->set_job("a b"); }},
      {"gangs",
       [](auto* r) {
         for (size_t i = 0; i <= kMaxGangs; ++i) r->add_gangs();
       }},
  };
  for (const auto& [field, change] : cases) {
    v1::Register proto = valid;
    change(&proto);
    const auto parsed = FromProto(proto);
    ASSERT_FALSE(parsed.ok()) << field;
    EXPECT_EQ(Message(parsed.status()).rfind("register." + field, 0), 0u)
        << Message(parsed.status());
  }
}

TEST(HostileTest, RendezvousAndLogsAreBounded) {
  RendezvousEntry entry{"a", 1, std::string(256, 'k'),
                        std::string(32 << 10, 'v')};
  EXPECT_TRUE(FromProto(ToRendezvousPut(entry)).ok());
  entry.key += 'k';
  EXPECT_FALSE(FromProto(ToRendezvousPut(entry)).ok());
  EXPECT_FALSE(FromProto(ToRendezvousGet(entry)).ok());
  entry.key = "k";
  entry.value += 'v';
  EXPECT_FALSE(FromProto(ToRendezvousPut(entry)).ok());
  entry.key = "";
  EXPECT_FALSE(FromProto(ToRendezvousGet(entry)).ok());

  LogPiece piece{"a", "u", 1, 0, 0, std::string(256 << 10, 'x'), false};
  EXPECT_TRUE(FromProto(ToProto(piece)).ok());
  piece.data += 'x';
  EXPECT_FALSE(FromProto(ToProto(piece)).ok());
  piece.data.clear();
  piece.offset = UINT64_MAX;
  EXPECT_FALSE(FromProto(ToProto(piece)).ok());
  piece.offset = 0;
  piece.generation = 0;
  EXPECT_FALSE(FromProto(ToProto(piece)).ok());
}

TEST(HostileTest, Times) {
  google::protobuf::Timestamp time;
  time.set_seconds(253'402'300'799);  // The last second of the year 9999.
  EXPECT_FALSE(FromProto(time).ok());
  time.set_seconds(-1);
  EXPECT_FALSE(FromProto(time).ok());
  time.set_seconds(1'700'000'000);
  time.set_nanos(1'000'000'000);
  EXPECT_FALSE(FromProto(time).ok());
  time.set_nanos(999'999'999);
  EXPECT_EQ(ToUnixNanos(FromProto(time).value()), 1'700'000'000'999'999'999);
}

TEST(HostileTest, EnumsOfANewerVersionAreRefused) {
  EXPECT_FALSE(FromProto(static_cast<v1::Goal>(99)).ok());
  EXPECT_FALSE(FromProto(v1::GOAL_UNSPECIFIED).ok());
  EXPECT_FALSE(FromProto(static_cast<v1::GangPhase>(-1)).ok());
  EXPECT_FALSE(FromProto(static_cast<v1::Reason>(9999)).ok());
  EXPECT_EQ(FromProto(v1::REASON_UNSPECIFIED).value(), Reason::kNone);
  for (const JobState state : kAllJobStates) {
    EXPECT_EQ(FromProto(ToProto(state)).value(), state);
  }
}

}  // namespace
}  // namespace lockstep
