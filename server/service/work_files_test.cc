#include "server/service/work_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

namespace lockstep::server {
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

// Waits for the answer on the test's thread.
class Asker final : public StreamPeer {
 public:
  void Wake() override {
    MutexLock lock(&mu_);
    woken_ = true;
    changed_.NotifyAll();
  }
  bool IsCancelled() const override { return false; }
  void Cancel() override {}
  StatusOr<FileAnswer> Ask(WorkFiles* files, const FileQuery& query) {
    WorkFiles::Question question(files, "a", query, this);
    for (;;) {
      auto answer = question.Take();
      if (!answer.ok()) return answer.status();
      if (*answer) return **std::move(answer);
      MutexLock lock(&mu_);
      while (!woken_) {
        if (!changed_.WaitUntil(&mu_, question.deadline())) break;
      }
      woken_ = false;
    }
  }

 private:
  Mutex mu_;
  CondVar changed_;
  bool woken_ ABSL_GUARDED_BY(mu_) = false;
};

StatusOr<FileAnswer> Ask(WorkFiles* files, const FileQuery& query) {
  return Asker().Ask(files, query);
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
  EXPECT_EQ(Ask(&files, query)->data, "bytes");
}

TEST(WorkFilesTest, ANodesRefusalIsReturnedWithItsName) {
  WorkFiles files(Options(60s));
  WorkFiles::Connection a = 0;
  a = files.Connect("a", [&](const FileQuery& query) {
    FileAnswer answer = With(query.id, "");
    answer.status = NotFound("x is not there");
    files.OnAnswer(a, answer);
  });
  const Status status = Ask(&files, {}).status();
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
  EXPECT_EQ(Ask(&files, {}).status().code(), StatusCode::kDeadlineExceeded);
}

TEST(WorkFilesTest, ASilentNodeIsToldOfAtOnce) {
  WorkFiles files(Options(60s));
  EXPECT_EQ(Ask(&files, {}).status().code(), StatusCode::kUnavailable);
  const auto a = files.Connect("a", [](const FileQuery&) {});
  files.Disconnect(a);
  EXPECT_THAT(Message(Ask(&files, {}).status()),
              HasSubstr("node a, which has the files, is silent"));
}

TEST(WorkFilesTest, ABrokenStreamEndsTheWait) {
  WorkFiles files(Options(60s));
  WorkFiles::Connection a = 0;
  std::thread breaks;
  a = files.Connect("a", [&](const FileQuery&) {
    breaks = std::thread([&] { files.Disconnect(a); });
  });
  EXPECT_EQ(Ask(&files, {}).status().code(), StatusCode::kUnavailable);
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
  EXPECT_EQ(Ask(&files, {})->data, "new");
}

TEST(WorkFilesTest, ANodeHasOnlySoMuchToAnswerAtATime) {
  WorkFiles files(Options(60s, 1));
  WorkFiles::Connection a = 0;
  a = files.Connect("a", [&](const FileQuery& query) {
    // While the first one waits.
    if (query.path == "first") {
      FileQuery second;
      second.path = "second";
      EXPECT_EQ(ReasonOf(Ask(&files, second).status()), "BUSY");
    }
    files.OnAnswer(a, With(query.id, "ok"));
  });
  FileQuery first;
  first.path = "first";
  EXPECT_TRUE(Ask(&files, first).ok());
  EXPECT_TRUE(Ask(&files, first).ok()) << "its place is free again";
}

}  // namespace
}  // namespace lockstep::server
