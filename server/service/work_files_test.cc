#include "server/service/work_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

namespace lockstep {
namespace {

using std::chrono_literals::operator""ms;
using std::chrono_literals::operator""s;
using testing::HasSubstr;

WorkFilesOptions Options(Duration patience, size_t of_node = 8) {
  WorkFilesOptions options;
  options.patience = patience;
  options.of_node = of_node;
  return options;
}

FileAnswer With(uint64_t id, const std::string& data) {
  FileAnswer answer;
  answer.id = id;
  answer.data = data;
  return answer;
}

TEST(WorkFilesTest, ANodesAnswerIsReturned) {
  WorkFiles files(Options(60s));
  WorkFiles::Connection a = 0;
  a = files.Connect("a", [&](const FileQuery& query) {
    EXPECT_EQ(query.path, "x");
    files.OnAnswer(a, With(query.id, "bytes"));
  });
  FileQuery query;
  query.path = "x";
  EXPECT_EQ(files.Ask("a", query)->data, "bytes");
}

TEST(WorkFilesTest, ANodesRefusalIsReturnedWithItsName) {
  WorkFiles files(Options(60s));
  WorkFiles::Connection a = 0;
  a = files.Connect("a", [&](const FileQuery& query) {
    FileAnswer answer = With(query.id, "");
    answer.status = NotFound("x is not there");
    files.OnAnswer(a, answer);
  });
  const Status status = files.Ask("a", {}).status();
  EXPECT_EQ(status.code(), StatusCode::kNotFound);
  EXPECT_EQ(Message(status), "node a: x is not there");
}

TEST(WorkFilesTest, OnlyTheNodeThatWasAskedAnswers) {
  WorkFiles files(Options(50ms));
  const auto b = files.Connect("b", [](const FileQuery&) {});
  (void)files.Connect("a", [&](const FileQuery& query) {
    files.OnAnswer(b, With(query.id, "forged"));
    files.OnAnswer(0, With(query.id, "forged"));
  });
  EXPECT_EQ(files.Ask("a", {}).status().code(), StatusCode::kDeadlineExceeded);
}

TEST(WorkFilesTest, ASilentNodeIsToldOfAtOnce) {
  WorkFiles files(Options(60s));
  EXPECT_EQ(files.Ask("a", {}).status().code(), StatusCode::kUnavailable);
  const auto a = files.Connect("a", [](const FileQuery&) {});
  files.Disconnect(a);
  EXPECT_THAT(Message(files.Ask("a", {}).status()),
              HasSubstr("node a, which has the files, is silent"));
}

TEST(WorkFilesTest, ABrokenStreamEndsTheWait) {
  WorkFiles files(Options(60s));
  WorkFiles::Connection a = 0;
  std::thread breaks;
  a = files.Connect("a", [&](const FileQuery&) {
    breaks = std::thread([&] { files.Disconnect(a); });
  });
  EXPECT_EQ(files.Ask("a", {}).status().code(), StatusCode::kUnavailable);
  breaks.join();
}

TEST(WorkFilesTest, ALaterStreamOfTheNodeTakesItsPlace) {
  WorkFiles files(Options(60s));
  const auto old = files.Connect("a", [](const FileQuery&) {
    ADD_FAILURE() << "the old stream is asked";
  });
  WorkFiles::Connection a = 0;
  a = files.Connect("a", [&](const FileQuery& query) {
    files.OnAnswer(a, With(query.id, "new"));
  });
  files.Disconnect(old);
  EXPECT_EQ(files.Ask("a", {})->data, "new");
}

TEST(WorkFilesTest, ANodeHasOnlySoMuchToAnswerAtATime) {
  WorkFiles files(Options(60s, 1));
  WorkFiles::Connection a = 0;
  a = files.Connect("a", [&](const FileQuery& query) {
    // While the first one waits.
    if (query.path == "first") {
      FileQuery second;
      second.path = "second";
      EXPECT_EQ(ReasonOf(files.Ask("a", second).status()), "BUSY");
    }
    files.OnAnswer(a, With(query.id, "ok"));
  });
  FileQuery first;
  first.path = "first";
  EXPECT_TRUE(files.Ask("a", first).ok());
  EXPECT_TRUE(files.Ask("a", first).ok()) << "its place is free again";
}

}  // namespace
}  // namespace lockstep
