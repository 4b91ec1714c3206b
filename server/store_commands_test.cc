#include "server/store_commands.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <sstream>

#include "common/base/file.h"
#include "server/store/sqlite_store.h"
#include "server/store/testing.h"
#include "server/store_file_name.h"

namespace lockstep::server {
namespace {

using testing::HasSubstr;

class StoreCommandsTest : public testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/lockstep-commands-XXXXXX";
    ASSERT_NE(::mkdtemp(name), nullptr);
    dir_ = name;
    path_ = JoinPath(dir_, kStoreFile);
  }
  void TearDown() override {
    EXPECT_TRUE(RealFileSystem()->RemoveAll(dir_).ok());
  }

  void Commit(int64_t version) {
    auto store = OpenSqliteStore(path_);
    ASSERT_TRUE(store.ok()) << Message(store.status());
    StoreBatch batch;
    batch.version = version;
    batch.jobs = {std::make_shared<const Job>(FullJob())};
    ASSERT_TRUE((*store)->Commit(batch).ok());
  }
  // The exit code; -1: no command of the store.
  int Run(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), "lockstep-coordinator");
    std::vector<char*> argv;
    for (std::string& argument : arguments) argv.push_back(argument.data());
    out_.str("");
    err_.str("");
    int code = -1;
    const bool ran = RunStoreCommand(static_cast<int>(argv.size()), argv.data(),
                                     out_, err_, &code);
    return ran ? code : -1;
  }

  std::string dir_;
  std::string path_;
  std::ostringstream out_;
  std::ostringstream err_;
};

TEST_F(StoreCommandsTest, OtherWordsAreTheDaemons) {
  EXPECT_EQ(Run({}), -1);
  EXPECT_EQ(Run({"--dir", dir_}), -1);
  EXPECT_EQ(Run({"verify"}), 2);
  EXPECT_EQ(Run({"verify", "--help"}), 0);
}

TEST_F(StoreCommandsTest, VerifySaysWhatIsThereOrWhatDiffers) {
  Commit(1);
  EXPECT_EQ(Run({"verify", dir_}), 0) << err_.str();
  EXPECT_THAT(out_.str(), HasSubstr("whole: 1 jobs and 0 nodes at version 1"));
  std::string bytes = *RealFileSystem()->Read(path_);
  bytes[bytes.size() - 2000] ^= 1;
  ASSERT_TRUE(RealFileSystem()->WriteAtomic(path_, bytes).ok());
  EXPECT_EQ(Run({"verify", dir_}), 1);
  EXPECT_THAT(err_.str(), HasSubstr("damaged"));
  EXPECT_EQ(Run({"verify", "/no/such/place"}), 1);
}

TEST_F(StoreCommandsTest, RestoreAndAcceptLoss) {
  Commit(1);
  const std::string backup = JoinPath(dir_, "backup.db");
  ASSERT_TRUE(BackupSqliteStore(path_, backup).ok());
  EXPECT_EQ(Run({"verify", backup}), 0) << err_.str();
  Commit(2);
  EXPECT_EQ(Run({"restore", backup, dir_}), 0) << err_.str();
  EXPECT_THAT(out_.str(), HasSubstr("1 jobs and 0 nodes at version 1"));
  ASSERT_TRUE(RealFileSystem()->Remove(path_ + ".mark").ok());
  EXPECT_EQ(Run({"verify", dir_}), 1);
  EXPECT_EQ(Run({"accept-loss", dir_}), 0) << err_.str();
  EXPECT_EQ(Run({"verify", dir_}), 0) << err_.str();
}

}  // namespace
}  // namespace lockstep::server
