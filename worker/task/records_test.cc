// Round trips of every record, and what a damaged one does: every truncation
// and every flipped bit is refused with a sentence, none crashes.
#include <errno.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <string.h>

#include <functional>
#include <string>

#include "worker/task/bytes.h"
#include "worker/task/exit_record.h"
#include "worker/task/log_files.h"
#include "worker/task/same_secret.h"
#include "worker/task/shim_messages.h"
#include "worker/task/shim_spec.h"
#include "worker/task/task_record.h"

namespace lockstep::worker::task {
namespace {

using Decoder = std::function<bool(std::string_view, std::string*)>;

void ExpectDamageIsRefused(const std::string& bytes, const Decoder& decode) {
  std::string error;
  ASSERT_TRUE(decode(bytes, &error)) << error;
  for (size_t size = 0; size < bytes.size(); ++size) {
    error.clear();
    EXPECT_FALSE(decode(bytes.substr(0, size), &error)) << size;
    EXPECT_FALSE(error.empty());
  }
  for (size_t bit = 0; bit < bytes.size() * 8; ++bit) {
    std::string flipped = bytes;
    flipped[bit / 8] = static_cast<char>(flipped[bit / 8] ^ (1 << (bit % 8)));
    EXPECT_FALSE(decode(flipped, &error)) << "bit " << bit;
  }
  EXPECT_FALSE(decode(bytes + '\0', &error));
}

// The payload cut short under a right checksum: the fields' own checks.
void ExpectShortPayloadsAreRefused(const std::string& bytes,
                                   const Decoder& decode) {
  const std::string payload = bytes.substr(16, bytes.size() - 20);
  uint32_t version = 0;
  memcpy(&version, bytes.data() + 8, sizeof(version));
  std::string error;
  for (size_t size = 0; size < payload.size(); ++size) {
    EXPECT_FALSE(decode(
        Seal(bytes.substr(0, 8), version, payload.substr(0, size)), &error))
        << size;
  }
  EXPECT_FALSE(
      decode(Seal(bytes.substr(0, 8), version, payload + "x"), &error));
  EXPECT_FALSE(decode(Seal(bytes.substr(0, 8), version + 1, payload), &error));
  EXPECT_NE(error.find("another version"), std::string::npos) << error;
}

ShimSpec Spec() {
  ShimSpec spec;
  spec.job = "mnist";
  spec.generation = 3;
  spec.rank = 1;
  spec.argv = {"train", "", "--x=1"};
  spec.env = {"PATH=/bin", "EMPTY="};
  spec.cwd = "/tmp";
  spec.set_ids = true;
  spec.uid = 1000;
  spec.gid = 1001;
  spec.groups = {4, 27};
  spec.umask = 027;
  spec.core_limit = UINT64_MAX;
  spec.log_path = "/run/l";
  spec.task_record_path = "/run/t";
  spec.exit_record_path = "/run/e";
  spec.socket_path = "/run/s";
  spec.cgroup = "/sys/fs/cgroup/x";
  spec.page_path = "/run/p";
  spec.nonce = std::string(32, '\x80');
  spec.secret = std::string("k\0y", 3);
  spec.secret_fd = 9;
  spec.ports = {2222, 65535};
  spec.grace_nanos = 7;
  spec.drain_nanos = 8;
  spec.container.name = "c";
  spec.container.signal = {"/bin/e", "kill", "%", "c"};
  spec.container.inspect = {"/bin/e", "inspect", "c"};
  spec.container.remove = {"/bin/e", "rm", "c"};
  spec.container.reports = true;
  spec.fence_nanos = 10;
  return spec;
}

ExitRecord Exit() {
  ExitRecord r;
  r.job = "mnist";
  r.generation = 3;
  r.rank = 1;
  r.boot_id = "b";
  r.process = {123, 456};
  r.kind = ExitKind::kSignaled;
  r.wait_status = SIGKILL;
  r.message = "killed";
  r.user_nanos = 1;
  r.system_nanos = 2;
  r.max_rss_bytes = 3;
  r.start_unix_nanos = 4;
  r.end_unix_nanos = 5;
  r.start_mono_nanos = 6;
  r.end_mono_nanos = 7;
  r.tree_killed = 8;
  r.tree_left = 9;
  r.log_bytes = 10;
  r.log_lost_bytes = 11;
  r.log_error = "disk full";
  r.oom_kills = 12;
  r.fenced = true;
  return r;
}

uint32_t VersionOf(const std::string& bytes) {
  uint32_t version = 0;
  memcpy(&version, bytes.data() + 8, sizeof(version));
  return version;
}

// Daemons and shims of older versions meet those of newer ones in an upgrade.
TEST(RecordVersionTest, OnlyFencedRanksNeedTheNewerVersions) {
  std::string error;
  ShimSpec spec = Spec();
  EXPECT_EQ(VersionOf(EncodeShimSpec(spec)), 4u);
  spec.fence_nanos = 0;
  const std::string plain = EncodeShimSpec(spec);
  EXPECT_EQ(VersionOf(plain), 3u);
  ShimSpec read = Spec();
  ASSERT_TRUE(DecodeShimSpec(plain, &read, &error)) << error;

  ExitRecord exit = Exit();
  EXPECT_EQ(VersionOf(EncodeExitRecord(exit)), 3u);
  exit.fenced = false;
  EXPECT_EQ(VersionOf(EncodeExitRecord(exit)), 2u);
  ExitRecord other;
  ASSERT_TRUE(DecodeExitRecord(EncodeExitRecord(exit), &other, &error));
  EXPECT_EQ(other, exit);
}

TEST(ShimRequestTest, ARenewalHasItsTimeAndOthersNoFieldMore) {
  ShimRequest request;
  request.kind = ShimRequest::Kind::kState;
  const std::string state = EncodeShimRequest(request);
  request.kind = ShimRequest::Kind::kFence;
  request.fence_nanos = 77;
  const std::string fence = EncodeShimRequest(request);
  EXPECT_EQ(fence.size(), state.size() + sizeof(int64_t));
  ShimRequest read;
  std::string error;
  ASSERT_TRUE(DecodeShimRequest(fence, &read, &error)) << error;
  EXPECT_EQ(read.fence_nanos, 77);
}

TEST(ShimRequestTest, ASessionHasItsCommand) {
  ShimRequest request;
  request.kind = ShimRequest::Kind::kSession;
  ShimRequest read;
  std::string error;
  EXPECT_FALSE(DecodeShimRequest(EncodeShimRequest(request), &read, &error));
  request.argv = {"bash", "-l"};
  request.env = {"TERM=xterm"};
  request.terminal = true;
  request.in_container = true;
  ASSERT_TRUE(DecodeShimRequest(EncodeShimRequest(request), &read, &error))
      << error;
  EXPECT_EQ(read.argv, request.argv);
  EXPECT_EQ(read.env, request.env);
  EXPECT_TRUE(read.terminal);
  EXPECT_TRUE(read.in_container);
}

TEST(SameSecretTest, EveryByteAndTheLengthCount) {
  EXPECT_TRUE(SameSecret("", ""));
  EXPECT_TRUE(SameSecret(std::string("a\0b", 3), std::string("a\0b", 3)));
  EXPECT_FALSE(SameSecret(std::string("a\0b", 3), std::string("a\0c", 3)));
  EXPECT_FALSE(SameSecret("xb", "ab"));
  EXPECT_FALSE(SameSecret("ab", "abc"));
  EXPECT_FALSE(SameSecret("", "a"));
}

// The vectors of RFC 3720, appendix B.4.
TEST(BytesTest, CrcMatchesThePublishedVectors) {
  EXPECT_EQ(Crc32c(std::string(32, '\0')), 0x8a9136aau);
  EXPECT_EQ(Crc32c("123456789"), 0xe3069283u);
}

TEST(BytesTest, ACountIsNotBelievedBeyondTheBytesThatFollow) {
  ByteWriter w;
  w.U32(0xffffffff);
  const std::string bytes = w.Take();
  ByteReader strings(bytes);
  EXPECT_TRUE(strings.Strs(SIZE_MAX, SIZE_MAX).empty());
  EXPECT_FALSE(strings.ok());
}

TEST(ShimSpecTest, ComesBackAsItWasAndRefusesDamage) {
  const std::string bytes = EncodeShimSpec(Spec());
  ShimSpec got;
  std::string error;
  ASSERT_TRUE(DecodeShimSpec(bytes, &got, &error)) << error;
  EXPECT_EQ(EncodeShimSpec(got), bytes);
  EXPECT_EQ(got.argv, Spec().argv);
  EXPECT_EQ(got.groups, Spec().groups);
  EXPECT_EQ(got.cgroup, Spec().cgroup);
  EXPECT_EQ(got.container.remove, Spec().container.remove);
  EXPECT_TRUE(got.container.reports);
  EXPECT_EQ(got.secret, Spec().secret);
  EXPECT_EQ(got.core_limit, UINT64_MAX);
  const Decoder decode = [](std::string_view b, std::string* e) {
    ShimSpec spec;
    return DecodeShimSpec(b, &spec, e);
  };
  ExpectDamageIsRefused(bytes, decode);
  ExpectShortPayloadsAreRefused(bytes, decode);
}

TEST(ShimSpecTest, WhatCannotBeIsASentence) {
  const auto refusal = [](const std::function<void(ShimSpec*)>& spoil) {
    ShimSpec spec = Spec();
    spoil(&spec);
    std::string error;
    EXPECT_FALSE(CheckShimSpec(spec, &error));
    return error;
  };
  EXPECT_EQ(refusal([](ShimSpec* s) { s->argv.clear(); }),
            "the command is empty");
  EXPECT_EQ(refusal([](ShimSpec* s) { s->env = {"=x"}; }),
            "the variable \"=x\" is not NAME=value");
  EXPECT_EQ(refusal([](ShimSpec* s) { s->container.remove.clear(); }),
            "the container has no stop command");
  EXPECT_EQ(refusal([](ShimSpec* s) { s->cwd = "tmp"; }),
            "the path of the working directory, \"tmp\", is not an absolute "
            "path");
  const std::string longer = refusal([](ShimSpec* s) {
    s->socket_path = "/" + std::string(kMaxSocketPath, 'x');
  });
  EXPECT_NE(longer.find("has 108 bytes; Linux allows at most 107"),
            std::string::npos)
      << longer;
  ShimSpec spec = Spec();
  spec.socket_path = "/" + std::string(kMaxSocketPath - 1, 'x');
  std::string error;
  EXPECT_TRUE(CheckShimSpec(spec, &error)) << error;
}

TEST(TaskRecordTest, ComesBackAsItWasAndRefusesDamage) {
  TaskRecord record;
  record.job = "mnist";
  record.generation = 7;
  record.rank = 2;
  record.boot_id = "0c1f";
  record.shim = {100, 9999999999};
  record.process = {101, 10000000000};
  record.nonce = "nonce";
  record.socket_path = "/s";
  record.log_path = "/l";
  record.exit_record_path = "/e";
  record.page_path = "/p";
  record.cwd = "/";
  record.ports = {1, 2};
  record.started_unix_nanos = 5;
  record.engine = "/usr/bin/podman";
  record.container = "lockstep-mnist-g7-r2";
  const std::string bytes = EncodeTaskRecord(record);
  TaskRecord got;
  std::string error;
  ASSERT_TRUE(DecodeTaskRecord(bytes, &got, &error)) << error;
  EXPECT_EQ(got.process, record.process);
  EXPECT_EQ(EncodeTaskRecord(got), bytes);
  const Decoder decode = [](std::string_view b, std::string* e) {
    TaskRecord r;
    return DecodeTaskRecord(b, &r, e);
  };
  ExpectDamageIsRefused(bytes, decode);
  ExpectShortPayloadsAreRefused(bytes, decode);
}

// What an older daemon or shim has written is read, and reads ours.
TEST(RecordsTest, WithoutAContainerTheyAreOfTheFirstVersion) {
  const auto version = [](const std::string& bytes) { return bytes[8]; };
  TaskRecord task;
  task.job = "mnist";
  std::string bytes = EncodeTaskRecord(task);
  EXPECT_EQ(version(bytes), 1);
  std::string error;
  EXPECT_TRUE(DecodeTaskRecord(bytes, &task, &error)) << error;
  EXPECT_EQ(task.container, "");
  ExitRecord exit = Exit();
  exit.oom_kills = 0;
  exit.fenced = false;
  bytes = EncodeExitRecord(exit);
  EXPECT_EQ(version(bytes), 1);
  ExitRecord got;
  EXPECT_TRUE(DecodeExitRecord(bytes, &got, &error)) << error;
  EXPECT_EQ(got, exit);
}

TEST(ExitRecordTest, ComesBackAsItWasAndRefusesDamage) {
  const std::string bytes = EncodeExitRecord(Exit());
  ExitRecord got;
  std::string error;
  ASSERT_TRUE(DecodeExitRecord(bytes, &got, &error)) << error;
  EXPECT_EQ(got, Exit());
  const Decoder decode = [](std::string_view b, std::string* e) {
    ExitRecord r;
    return DecodeExitRecord(b, &r, e);
  };
  ExpectDamageIsRefused(bytes, decode);
  ExpectShortPayloadsAreRefused(bytes, decode);
}

TEST(ExitRecordTest, EndsAreDescribed) {
  ExitRecord r;
  r.wait_status = 3 << 8;
  EXPECT_EQ(DescribeExit(r), "exited with code 3");
  r.kind = ExitKind::kSignaled;
  r.wait_status = SIGSEGV | 0x80;
  EXPECT_EQ(DescribeExit(r), "killed by signal 11 (SIGSEGV), core dumped");
}

TEST(ShimMessagesTest, ComeBackAsTheyWereAndRefuseDamage) {
  ShimRequest request;
  request.kind = ShimRequest::Kind::kSignal;
  request.id = 9;
  request.nonce = "n";
  request.signo = SIGTERM;
  request.whole_tree = true;
  const std::string bytes = EncodeShimRequest(request);
  ShimRequest got;
  std::string error;
  ASSERT_TRUE(DecodeShimRequest(bytes, &got, &error)) << error;
  EXPECT_EQ(EncodeShimRequest(got), bytes);
  EXPECT_EQ(got.grace_nanos, -1);
  const Decoder decode = [](std::string_view b, std::string* e) {
    ShimRequest r;
    return DecodeShimRequest(b, &r, e);
  };
  ExpectDamageIsRefused(bytes, decode);
  ExpectShortPayloadsAreRefused(bytes, decode);

  request.signo = 65;
  EXPECT_FALSE(DecodeShimRequest(EncodeShimRequest(request), &got, &error));

  ShimReply reply;
  reply.id = 9;
  reply.phase = ShimReply::Phase::kExited;
  reply.process = {5, 6};
  reply.exit_record = Exit();
  reply.durable = true;
  const std::string reply_bytes = EncodeShimReply(reply);
  ShimReply reply_got;
  ASSERT_TRUE(DecodeShimReply(reply_bytes, &reply_got, &error)) << error;
  EXPECT_EQ(reply_got.exit_record, Exit());
  EXPECT_EQ(reply_got.process, reply.process);
  EXPECT_TRUE(reply_got.durable);
  const Decoder decode_reply = [](std::string_view b, std::string* e) {
    ShimReply r;
    return DecodeShimReply(b, &r, e);
  };
  ExpectDamageIsRefused(reply_bytes, decode_reply);
  ExpectShortPayloadsAreRefused(reply_bytes, decode_reply);
}

TEST(LogFilesTest, SegmentNamesSayTheirOffset) {
  EXPECT_EQ(SegmentPath("/d/log", 0), "/d/log");
  EXPECT_EQ(SegmentPath("/d/log", 16777216), "/d/log.00000000000016777216");
  uint64_t offset = 1;
  EXPECT_TRUE(ParseSegmentName("log", "log", &offset));
  EXPECT_EQ(offset, 0u);
  EXPECT_TRUE(ParseSegmentName("log", "log.00000000000016777216", &offset));
  EXPECT_EQ(offset, 16777216u);
  for (const char* name :
       {"log.1", "logx00000000000016777216", "log.0000000000001677721x",
        "log.99999999999999999999", "log.00000000000000000000", "other"}) {
    EXPECT_FALSE(ParseSegmentName("log", name, &offset)) << name;
  }
}

TEST(LogFilesTest, AnOffsetInAGapGoesOnAtTheNextSegment) {
  const std::vector<LogSegment> segments = {{0, 100}, {300, 50}, {350, 10}};
  LogPosition p = FindLogPosition(segments, 99);
  EXPECT_TRUE(p.found);
  EXPECT_EQ(p.segment, 0u);
  EXPECT_EQ(p.gap, 0u);
  p = FindLogPosition(segments, 100);
  EXPECT_EQ(p.segment, 1u);
  EXPECT_EQ(p.offset, 300u);
  EXPECT_EQ(p.gap, 200u);
  p = FindLogPosition(segments, 350);
  EXPECT_EQ(p.segment, 2u);
  EXPECT_FALSE(FindLogPosition(segments, 360).found);
  EXPECT_FALSE(FindLogPosition({}, 0).found);
}

}  // namespace
}  // namespace lockstep::worker::task
