#include "worker/agent/prepare/output_identity.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <string>
#include <thread>
#include <vector>

#include "common/model/output_identity.h"

namespace lockstep::worker::agent {
namespace {

using std::chrono_literals::operator""ms;
using testing::ElementsAre;
using testing::HasSubstr;

const std::string kOther(32, 'e');

class OutputIdentityTest : public testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/lockstep-identity-XXXXXX";
    ASSERT_NE(mkdtemp(name), nullptr);
    input_.directory = name;
    input_.has_first_rank = true;
    input_.options = {0ms, 5ms};
  }
  void TearDown() override {
    EXPECT_TRUE(files_->RemoveAll(input_.directory).ok());
  }
  StatusOr<std::string> Look() {
    return OutputIdentity(
        files_, input_, [this] { ++waits_; }, &cancel_);
  }
  std::string File() const {
    return JoinPath(input_.directory, kOutputIdentityFile);
  }
  void Write(const std::string& text) {
    ASSERT_TRUE(files_->WriteAtomic(File(), text).ok());
  }

  FileSystem* const files_ = RealFileSystem();
  OutputIdentityInput input_;
  package::Cancellation cancel_;
  int waits_ = 0;
};

TEST_F(OutputIdentityTest, TheHostOfRankZeroMakesItOnce) {
  const auto made = Look();
  ASSERT_TRUE(made.ok()) << made.status();
  EXPECT_TRUE(IsOutputIdentity(*made));
  EXPECT_EQ(files_->Read(File()).value(), *made + "\n");
  EXPECT_EQ(Look().value(), *made);
  EXPECT_THAT(files_->List(input_.directory).value(),
              ElementsAre(kOutputIdentityFile));
  struct stat info {};
  ASSERT_EQ(stat(File().c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0444, 0444u) << "other hosts' users read it";
}

TEST_F(OutputIdentityTest, TwoThatMakeItAtOnceAgree) {
  std::vector<std::string> seen(8);
  std::vector<std::thread> threads;
  for (std::string& result : seen) {
    threads.emplace_back([&] {
      package::Cancellation cancel;
      result = OutputIdentity(
                   files_, input_, [] {}, &cancel)
                   .value_or("");
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_NE(seen[0], "");
  EXPECT_THAT(seen, testing::Each(seen[0]));
}

TEST_F(OutputIdentityTest, ADamagedFileIsRefusedInOneSentence) {
  for (const std::string& text :
       std::vector<std::string>{"", "x\n", "abc", std::string(32, 'G')}) {
    Write(text);
    const Status status = Look().status();
    EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
    EXPECT_THAT(Message(status), HasSubstr(File() + " is damaged"));
    EXPECT_EQ(ReasonOf(status), "");
  }
  Write(std::string(8192, 'a'));
  EXPECT_THAT(Message(Look().status()), HasSubstr("is damaged"));
}

// The directory is the user's: what lies there must not hold up the node.
TEST_F(OutputIdentityTest, WhatIsNotAFileIsRefused) {
  ASSERT_EQ(mkfifo(File().c_str(), 0644), 0);
  EXPECT_EQ(Look().status().code(), StatusCode::kFailedPrecondition);
  ASSERT_EQ(unlink(File().c_str()), 0);
  ASSERT_EQ(symlink("/etc/hostname", File().c_str()), 0);
  EXPECT_EQ(Look().status().code(), StatusCode::kFailedPrecondition);
  ASSERT_EQ(unlink(File().c_str()), 0);
  ASSERT_EQ(mkdir(File().c_str(), 0755), 0);
  EXPECT_EQ(Look().status().code(), StatusCode::kFailedPrecondition);
}

TEST_F(OutputIdentityTest, AnotherHostSeesTheSame) {
  const std::string made = Look().value();
  input_.has_first_rank = false;
  input_.expected = made;
  EXPECT_EQ(Look().value(), made);
  EXPECT_EQ(waits_, 0);
}

TEST_F(OutputIdentityTest, WhatIsMissingIsAwaited) {
  input_.has_first_rank = false;
  input_.expected = kOther;
  input_.options.patience = std::chrono::seconds(60);
  // NFS shows it later.
  std::thread other([&] {
    package::Cancellation cancel;
    cancel.SleepFor(20ms);
    Write(kOther + "\n");
  });
  EXPECT_EQ(Look().value_or("nothing"), kOther);
  other.join();
  EXPECT_GE(waits_, 1);
}

TEST_F(OutputIdentityTest, WhatStaysMissingIsNotShared) {
  input_.has_first_rank = false;
  input_.expected = kOther;
  input_.options.patience = 20ms;
  const Status status = Look().status();
  EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(ReasonOf(status), kOutputNotShared);
  EXPECT_THAT(Message(status),
              HasSubstr("the output directory " + input_.directory +
                        " is not shared: this host does not see the file "
                        ".lockstep-directory"));
  EXPECT_GE(waits_, 1);
  EXPECT_FALSE(files_->Exists(File()));
}

TEST_F(OutputIdentityTest, AnotherDirectoryIsNotShared) {
  Write(std::string(32, 'b') + "\n");
  input_.has_first_rank = false;
  input_.expected = kOther;
  const Status status = Look().status();
  EXPECT_EQ(ReasonOf(status), kOutputNotShared);
  EXPECT_THAT(Message(status), HasSubstr("sees another file"));
}

// The directory may not be mounted: a second file would hide that for ever.
TEST_F(OutputIdentityTest, AKnownIdentityIsNeverMadeAnew) {
  input_.expected = kOther;
  const Status status = Look().status();
  EXPECT_EQ(ReasonOf(status), kOutputMissing) << status;
  EXPECT_THAT(Message(status), HasSubstr("mount the directory again"));
  EXPECT_FALSE(files_->Exists(File()));
}

// Whatever is there instead is not the directory that the job has written to.
TEST_F(OutputIdentityTest, AnotherOrADamagedFileIsNotTheKnownOne) {
  input_.expected = kOther;
  Write(std::string(32, 'b') + "\n");
  EXPECT_EQ(ReasonOf(Look().status()), kOutputMissing);
  Write("nonsense");
  EXPECT_EQ(ReasonOf(Look().status()), kOutputMissing);
  ASSERT_EQ(unlink(File().c_str()), 0);
  ASSERT_EQ(mkdir(File().c_str(), 0755), 0);
  EXPECT_EQ(ReasonOf(Look().status()), kOutputMissing);
}

TEST_F(OutputIdentityTest, ADirectoryThatMayNotBeReadIsNotTheKnownOne) {
  if (geteuid() != 0) GTEST_SKIP() << "only root becomes another user";
  input_.expected = kOther;
  input_.user = TaskUser{12345, 12345, {}, "/"};
  // As the place of a mount often is.
  ASSERT_EQ(chmod(input_.directory.c_str(), 0), 0);
  EXPECT_EQ(ReasonOf(Look().status()), kOutputMissing);
  ASSERT_EQ(chmod(input_.directory.c_str(), 0755), 0);
}

TEST_F(OutputIdentityTest, ItMayBeToldToStop) {
  input_.has_first_rank = false;
  input_.expected = kOther;
  input_.options.patience = std::chrono::hours(1);
  std::thread stop([&] { cancel_.Cancel(); });
  EXPECT_EQ(Look().status().code(), StatusCode::kCancelled);
  stop.join();
}

TEST_F(OutputIdentityTest, ItIsMadeWithTheRightsOfTheTasksUser) {
  if (geteuid() != 0) GTEST_SKIP() << "only root becomes another user";
  ASSERT_EQ(chmod(input_.directory.c_str(), 0755), 0);
  input_.user = TaskUser{12345, 12345, {}, "/"};
  const Status status = Look().status();
  EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition) << status;
  EXPECT_THAT(Message(status), HasSubstr("cannot write an identity into"));
  ASSERT_EQ(chown(input_.directory.c_str(), 12345, 12345), 0);
  ASSERT_TRUE(Look().ok());
  struct stat info {};
  ASSERT_EQ(stat(File().c_str(), &info), 0);
  EXPECT_EQ(info.st_uid, 12345u);
}

}  // namespace
}  // namespace lockstep::worker::agent
