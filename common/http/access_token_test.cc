#include "common/http/access_token.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <future>
#include <vector>

#include "common/base/file.h"
#include "common/http/http_test_util.h"
#include "tests/support/fake_clock.h"

namespace lockstep::http {
namespace {

using testing::HasSubstr;

constexpr char kToken[] = "0123456789abcdefghij";

class AccessTokenTest : public testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/lockstep-token-XXXXXX";
    ASSERT_NE(::mkdtemp(name), nullptr);
    dir_ = name;
    path_ = dir_ + "/token";
  }
  void TearDown() override {
    EXPECT_TRUE(RealFileSystem()->RemoveAll(dir_).ok());
  }
  void Write(const std::string& text, mode_t mode = 0640) {
    ASSERT_TRUE(RealFileSystem()->WriteAtomic(path_, text, mode).ok());
    ASSERT_EQ(::chmod(path_.c_str(), mode), 0);
  }
  std::unique_ptr<AccessToken> Open() {
    auto token = AccessToken::Open(path_, &clock_);
    EXPECT_TRUE(token.ok()) << token.status();
    return token.ok() ? *std::move(token) : nullptr;
  }

  FakeClock clock_;
  std::string dir_;
  std::string path_;
};

TEST_F(AccessTokenTest, AMissingFileIsMadeForOwnerAndGroup) {
  const mode_t before = ::umask(0077);
  const auto token = Open();
  ::umask(before);
  ASSERT_NE(token, nullptr);
  const auto info = RealFileSystem()->Stat(path_);
  ASSERT_TRUE(info.ok());
  EXPECT_EQ(info->mode & 0777, 0640u);
  std::string text = RealFileSystem()->Read(path_).value_or("");
  ASSERT_EQ(text.back(), '\n');
  text.pop_back();
  // base64url of 32 bytes, without padding.
  EXPECT_EQ(text.size(), 43u);
  EXPECT_EQ(text.find_first_not_of("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopq"
                                   "rstuvwxyz0123456789-_"),
            std::string::npos)
      << text;
  EXPECT_TRUE(token->Admits("Bearer " + text));
  // The draft is gone.
  EXPECT_EQ(RealFileSystem()->List(dir_)->size(), 1u);
  // It stays the same.
  EXPECT_TRUE(Open()->Admits("Bearer " + text));
}

TEST_F(AccessTokenTest, WhoStartAtTheSameTimeHaveTheSame) {
  std::vector<std::future<std::unique_ptr<AccessToken>>> all;
  for (int i = 0; i < 8; ++i) {
    all.push_back(std::async(std::launch::async, [this] { return Open(); }));
  }
  std::vector<std::unique_ptr<AccessToken>> tokens;
  for (auto& one : all) tokens.push_back(one.get());
  std::string text = RealFileSystem()->Read(path_).value_or("");
  text.pop_back();
  for (const auto& token : tokens) {
    ASSERT_NE(token, nullptr);
    EXPECT_TRUE(token->Admits("Bearer " + text));
  }
  EXPECT_EQ(RealFileSystem()->List(dir_)->size(), 1u);
}

TEST_F(AccessTokenTest, OnlyTheTokenLetsIn) {
  Write(std::string(kToken) + "\r\n");
  const auto token = Open();
  ASSERT_NE(token, nullptr);
  const std::string right = kToken;
  const struct {
    std::string header;
    bool admitted;
  } cases[] = {
      {"Bearer " + right, true},
      {"bearer " + right, true},
      {Basic("token:" + right), true},
      {"", false},
      {"Bearer ", false},
      {"Bearer", false},
      {right, false},
      {"Bearer " + right + " ", false},
      {"Bearer " + right.substr(1), false},
      {"Bearer 0123456789abcdefghiJ", false},
      {"Bearer " + std::string(5000, 'x'), false},
      {"Basic " + right, false},
      {Basic("token:"), false},
      {Basic("token:x" + right), false},
      {Basic("root:" + right), false},
      {Basic(right), false},
      {"Basic =", false},
  };
  for (const auto& c : cases) {
    EXPECT_EQ(token->Admits(c.header), c.admitted) << c.header;
  }
}

TEST_F(AccessTokenTest, AFileThatIsNoTokenIsRefused) {
  const struct {
    std::string text;
    mode_t mode;
    StatusCode code;
    const char* why;
  } cases[] = {
      {"", 0640, StatusCode::kInvalidArgument, "one line of 16"},
      {"short\n", 0640, StatusCode::kInvalidArgument, "one line of 16"},
      {"0123456789 abcdefghij", 0640, StatusCode::kInvalidArgument, "visible"},
      {"0123456789\nabcdefghij", 0640, StatusCode::kInvalidArgument,
       "one line"},
      {std::string(513, 'x'), 0640, StatusCode::kInvalidArgument, "512"},
      {std::string(5000, 'x'), 0640, StatusCode::kFailedPrecondition, "read"},
      {kToken, 0644, StatusCode::kInvalidArgument, "chmod 0640"},
  };
  for (const auto& c : cases) {
    Write(c.text, c.mode);
    const auto token = AccessToken::Open(path_, &clock_);
    EXPECT_EQ(token.status().code(), c.code) << c.text << token.status();
    EXPECT_THAT(Message(token.status()), HasSubstr(c.why));
    EXPECT_THAT(Message(token.status()), HasSubstr(path_));
  }
  path_ = dir_ + "/nowhere/token";
  const auto token = AccessToken::Open(path_, &clock_);
  EXPECT_EQ(token.status().code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(Message(token.status()), HasSubstr("make its directory"));
}

TEST_F(AccessTokenTest, AnotherTokenCountsWithinASecond) {
  const std::string before = std::string("Bearer ") + kToken;
  const std::string after = "Bearer another-token-altogether";
  Write(kToken);
  const auto token = Open();
  ASSERT_NE(token, nullptr);
  Write("another-token-altogether\n");
  // No more than one look a second, whoever asks.
  EXPECT_FALSE(token->Admits(after));
  EXPECT_TRUE(token->Admits(before));
  clock_.Advance(std::chrono::seconds(1));
  EXPECT_TRUE(token->Admits(after));
  EXPECT_FALSE(token->Admits(before));
}

TEST_F(AccessTokenTest, AFileThatWentBadChangesNothing) {
  const std::string header = std::string("Bearer ") + kToken;
  Write(kToken);
  const auto token = Open();
  ASSERT_NE(token, nullptr);
  Write("bad\n");
  clock_.Advance(std::chrono::seconds(1));
  EXPECT_TRUE(token->Admits(header));
  EXPECT_FALSE(token->Admits("Bearer bad"));
  ASSERT_TRUE(RealFileSystem()->Remove(path_).ok());
  clock_.Advance(std::chrono::seconds(1));
  EXPECT_TRUE(token->Admits(header));
  // Right, but for everybody; and then for its group alone.
  Write("another-token-altogether", 0644);
  clock_.Advance(std::chrono::seconds(1));
  EXPECT_TRUE(token->Admits(header));
  ASSERT_EQ(::chmod(path_.c_str(), 0640), 0);
  clock_.Advance(std::chrono::seconds(1));
  EXPECT_TRUE(token->Admits("Bearer another-token-altogether"));
}

}  // namespace
}  // namespace lockstep::http
