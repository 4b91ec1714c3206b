// Stacks as py-spy printed them: recorded of real programs, and damaged.
#include "worker/evidence/py_spy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "common/base/file.h"

namespace lockstep::worker::evidence {
namespace {

using testing::HasSubstr;

std::string Recorded(const std::string& name) {
  const char* const source = getenv("LOCKSTEP_SOURCE");
  const auto text =
      RealFileSystem()->Read(JoinPath(source == nullptr ? "." : source,
                                      "worker/evidence/testdata/" + name),
                             1 << 20);
  EXPECT_TRUE(text.ok()) << text.status();
  return text.ok() ? *text : std::string();
}

TEST(PySpyTest, ARecordedProgramWithALock) {
  const auto threads = ParsePySpy(Recorded("lock.json"));
  ASSERT_TRUE(threads.ok()) << threads.status();
  ASSERT_EQ(threads->size(), 2u);
  // The main thread comes first, although py-spy printed it last.
  const ThreadEvidence& main = threads->at(0);
  EXPECT_TRUE(main.main);
  EXPECT_EQ(main.name, "MainThread");
  ASSERT_EQ(main.frames.size(), 2u);
  EXPECT_EQ(main.frames[0],
            (StackFrame{"lock", "wait_for_lock", "lock.py", 7, false}));
  EXPECT_EQ(main.frames[1].function, "<module>");
  const ThreadEvidence& other = threads->at(1);
  EXPECT_FALSE(other.main);
  EXPECT_EQ(other.name, "reducer");
  EXPECT_EQ(other.frames[0].function, "all_reduce");
  EXPECT_EQ(other.frames[1],
            (StackFrame{"threading", "Thread.run", "threading.py", 982, true}));
}

TEST(PySpyTest, ARecordedProgramThatWaitsForItsLoader) {
  const auto threads = ParsePySpy(Recorded("loader.json"));
  ASSERT_TRUE(threads.ok()) << threads.status();
  ASSERT_EQ(threads->size(), 1u);
  const auto& frames = threads->at(0).frames;
  ASSERT_GE(frames.size(), 4u);
  EXPECT_EQ(frames[0].module, "threading");
  EXPECT_TRUE(frames[1].library);
  EXPECT_EQ(frames[2].function, "DataLoader.__next__");
  EXPECT_FALSE(frames[2].library);
}

TEST(PySpyTest, ModulesAreNamedByTheirFiles) {
  const auto is = [](const char* path, const char* name, bool library) {
    const PythonModule module = ModuleOfFile(path);
    EXPECT_EQ(module.name, name) << path;
    EXPECT_EQ(module.library, library) << path;
  };
  is("/v/lib/python3.11/site-packages/torch/nn/functional.py",
     "torch.nn.functional", true);
  is("/usr/lib/python3/dist-packages/numpy/__init__.py", "numpy", true);
  is("/usr/lib/python3.11/threading.py", "threading", true);
  is("/usr/lib/python3.11/concurrent/futures/_base.py",
     "concurrent.futures._base", true);
  is("/home/ann/train.py", "train", false);
  // A folder of that name is no standard library.
  is("/home/ann/lib/python-code/train.py", "train", false);
  is("<frozen importlib._bootstrap>", "<frozen importlib._bootstrap>", true);
  is("<string>", "<string>", false);
  is("", "", false);
}

TEST(PySpyTest, PythonIsKnownByItsName) {
  EXPECT_TRUE(IsPythonName("/usr/bin/python3.11"));
  EXPECT_TRUE(IsPythonName("python"));
  EXPECT_TRUE(IsPythonName("/opt/pypy3"));
  EXPECT_FALSE(IsPythonName("/usr/bin/bash"));
  EXPECT_FALSE(IsPythonName("/opt/python/bin/train"));
}

TEST(PySpyTest, WhatIsNotItsAnswerIsRefused) {
  for (const char* text :
       {"", "{", "{}", "[]", "[1, 2]", "null", "\"x\"", "[{]", "\xff\xfe"}) {
    const auto threads = ParsePySpy(text);
    EXPECT_EQ(threads.status().code(), StatusCode::kDataLoss) << text;
    EXPECT_THAT(Message(threads.status()), HasSubstr("py-spy")) << text;
  }
}

TEST(PySpyTest, ForeignFieldsAndNumbersDoNoHarm) {
  const auto threads = ParsePySpy(
      R"([{"os_thread_id": -5, "pid": 1e99, "thread_name": 7,
           "owns_gil": "yes", "more": [{}],
           "frames": [7, {"name": ["x"], "line": 99999999999,
                          "filename": "/a/b\u0007.py"}]}])");
  ASSERT_TRUE(threads.ok()) << threads.status();
  const ThreadEvidence& thread = threads->at(0);
  EXPECT_EQ(thread.id, 0);
  EXPECT_EQ(thread.name, "");
  EXPECT_FALSE(thread.holds_gil);
  ASSERT_EQ(thread.frames.size(), 1u);
  EXPECT_EQ(thread.frames[0].function, "");
  EXPECT_EQ(thread.frames[0].line, 0);
  // Nothing commands a terminal.
  EXPECT_EQ(thread.frames[0].file.find('\a'), std::string::npos);
}

TEST(PySpyTest, SizeIsBounded) {
  std::string frames;
  for (int i = 0; i < 500; ++i) {
    frames += (i == 0 ? "" : ",") + std::string(R"({"name":")") +
              std::string(1000, 'f') + R"("})";
  }
  std::string json = "[";
  for (int i = 1; i <= 100; ++i) {
    json += (i == 1 ? "" : ",") + std::string(R"({"os_thread_id":)") +
            std::to_string(i) + R"(,"frames":[)" + (i == 1 ? frames : "") +
            "]}";
  }
  const auto threads = ParsePySpy(json + "]");
  ASSERT_TRUE(threads.ok()) << threads.status();
  EXPECT_EQ(threads->size(), kMaxEvidenceThreads);
  EXPECT_EQ(threads->at(0).frames.size(), kMaxEvidenceFrames);
  EXPECT_EQ(threads->at(0).frames[0].function.size(), kMaxEvidenceName);
}

}  // namespace
}  // namespace lockstep::worker::evidence
