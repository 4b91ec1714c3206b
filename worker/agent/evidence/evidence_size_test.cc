// Evidence of any size fits a message, and keeps what says most.
#include "worker/agent/evidence/evidence_size.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "common/wire/evidence_wire.h"

namespace lockstep::worker::agent {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// Every list and every text as long as it may be.
RankEvidence Largest() {
  RankEvidence evidence;
  evidence.node = "a";
  const std::string name(kMaxEvidenceName, 'n');
  const std::string text(kMaxEvidenceText, 't');
  ThreadEvidence thread;
  thread.name = thread.wait_channel = thread.system_call = name;
  thread.kernel_stack = text;
  thread.frames.assign(kMaxEvidenceFrames, {name, name, name, 1, true});
  ProcessEvidence process;
  process.command = name;
  process.stack_error = text;
  process.threads.assign(kMaxEvidenceThreads, thread);
  process.threads.back().main = true;
  evidence.processes.assign(kMaxEvidenceProcesses, process);
  evidence.sockets.assign(kMaxEvidenceSockets, {"tcp", name, name, "X", 1, 1});
  evidence.log_lines.assign(kMaxEvidenceLines, text);
  evidence.log_lines.back() = "the last";
  evidence.notes.assign(kMaxEvidenceNotes, text);
  return evidence;
}

TEST(EvidenceSizeTest, TheLargestFits) {
  RankEvidence evidence = Largest();
  LimitSize(&evidence);
  EXPECT_LE(SizeOf(evidence), kMaxEvidenceBytes);
  EXPECT_LT(ToProto(evidence).ByteSizeLong(), size_t{2} << 20);
  ASSERT_FALSE(evidence.processes.empty());
  EXPECT_TRUE(evidence.processes[0].threads.at(0).main);
  EXPECT_FALSE(evidence.processes[0].threads[0].frames.empty());
  EXPECT_EQ(evidence.log_lines.back(), "the last");
  EXPECT_THAT(evidence.notes.back(), HasSubstr("left out"));
  EXPECT_LE(evidence.notes.size(), kMaxEvidenceNotes);
  EXPECT_TRUE(FromProto(ToProto(evidence)).ok());
}

TEST(EvidenceSizeTest, ASmallOneStaysAsItIs) {
  RankEvidence evidence;
  evidence.notes = {"a note"};
  evidence.processes.resize(2);
  const RankEvidence before = evidence;
  LimitSize(&evidence);
  EXPECT_EQ(evidence, before);
  EXPECT_THAT(evidence.notes, ElementsAre("a note"));
}

}  // namespace
}  // namespace lockstep::worker::agent
