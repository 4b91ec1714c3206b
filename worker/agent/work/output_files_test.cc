#include "worker/agent/work/output_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/file.h"

namespace lockstep::worker::agent {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::SizeIs;

class OutputFilesTest : public testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/lockstep-outputs-XXXXXX";
    ASSERT_NE(mkdtemp(name), nullptr);
    dir_ = name;
  }
  void TearDown() override {
    EXPECT_TRUE(RealFileSystem()->RemoveAll(dir_).ok());
  }
  void Put(const std::string& path, size_t bytes) {
    const std::string full = dir_ + "/" + path;
    ASSERT_TRUE(
        RealFileSystem()->MakeDirs(full.substr(0, full.rfind('/'))).ok());
    auto file = RealFileSystem()->Create(full);
    ASSERT_TRUE(file.ok());
    ASSERT_TRUE((*file)->Append(std::string(bytes, 'x')).ok());
  }
  std::vector<OutputFile> Find() {
    return FindOutputFiles(dir_, limits_, [this] { return now_; });
  }
  std::string dir_;
  OutputLimits limits_;
  MonoTime now_;
};

TEST_F(OutputFilesTest, WhatFrameworksLeave) {
  Put("export/1/saved_model.pb", 10);
  Put("export/1/variables/variables.index", 1);
  Put("export/1/variables/variables.data-00000-of-00001", 100);
  Put("model.keras", 3);
  Put("old.h5", 4);
  Put("sub/model.safetensors", 5);
  Put("sub/net.pt", 6);
  Put("net.onnx", 7);
  Put("logs/train/events.out.tfevents.1.host.0.v2", 8);
  Put("logs/train/events.out.tfevents.2.host.0.v2", 8);
  Put("step-000000120.g7/MANIFEST", 9);
  Put("step-000000120.g7/shard-00001-of-00001.safetensors", 11);
  Put("tf/ckpt-3.index", 1);
  Put("tf/ckpt-3.data-00000-of-00001", 20);
  Put("data/train.index", 1);
  Put("readme.txt", 1);
  Put(".hidden/model.keras", 1);
  Put("workertemp_1/model.keras", 1);
  EXPECT_THAT(Find(),
              ElementsAre(OutputFile{"export/1", "saved_model", 111},
                          OutputFile{"logs/train", "tensorboard", 16},
                          OutputFile{"model.keras", "keras", 3},
                          OutputFile{"net.onnx", "onnx", 7},
                          OutputFile{"old.h5", "keras", 4},
                          OutputFile{"step-000000120.g7", "checkpoint", 20},
                          OutputFile{"sub/model.safetensors", "safetensors", 5},
                          OutputFile{"sub/net.pt", "torch", 6},
                          OutputFile{"tf/ckpt-3.index", "checkpoint", 21}));
}

TEST_F(OutputFilesTest, TheDirectoryItselfMayBeTheModel) {
  Put("saved_model.pb", 10);
  EXPECT_THAT(Find(), ElementsAre(OutputFile{".", "saved_model", 10}));
}

TEST_F(OutputFilesTest, LinksAreNotFollowed) {
  Put("real/model.keras", 1);
  ASSERT_EQ(symlink((dir_ + "/real").c_str(), (dir_ + "/link").c_str()), 0);
  ASSERT_EQ(symlink((dir_ + "/real/model.keras").c_str(),
                    (dir_ + "/other.keras").c_str()),
            0);
  ASSERT_EQ(mkfifo((dir_ + "/pipe.keras").c_str(), 0600), 0);
  EXPECT_THAT(Find(), ElementsAre(OutputFile{"real/model.keras", "keras", 1}));
}

TEST_F(OutputFilesTest, TheSearchIsBounded) {
  for (int i = 0; i < 12; ++i) Put("m" + std::to_string(i) + ".pt", 1);
  Put("a/b/c/d.pt", 1);
  EXPECT_THAT(Find(), SizeIs(13));
  limits_.depth = 2;
  EXPECT_THAT(Find(), SizeIs(12));
  limits_.files = 5;
  EXPECT_THAT(Find(), SizeIs(5));
  limits_.entries = 3;
  EXPECT_LE(Find().size(), 3u);
  limits_ = OutputLimits();
  limits_.time = Duration{};
  EXPECT_THAT(Find(), IsEmpty());
}

TEST_F(OutputFilesTest, WhatIsNotThereIsEmpty) {
  EXPECT_THAT(
      FindOutputFiles(dir_ + "/none", limits_, [] { return MonoTime(); }),
      IsEmpty());
  EXPECT_THAT(
      FindOutputFiles("gs://bucket", limits_, [] { return MonoTime(); }),
      IsEmpty());
}

}  // namespace
}  // namespace lockstep::worker::agent
