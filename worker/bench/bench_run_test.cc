// Wrong data is seen, counted and told, whatever was measured.
#include "worker/bench/bench_run.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <nlohmann/json.hpp>

#include "common/base/file.h"
#include "worker/collective/factory/form_communicator.h"
#include "worker/collective/testing.h"

namespace lockstep::worker::bench {
namespace {

// A rank alone, whose large reductions have a wrong first element.
class WrongCommunicator final : public collective::ForwardingCommunicator {
 public:
  using ForwardingCommunicator::ForwardingCommunicator;
  StatusOr<std::unique_ptr<collective::Work>> Start(
      const collective::Operation& operation,
      collective::Stream stream) override {
    const collective::Slice& slice = operation.slice;
    if (operation.kind == collective::CollectiveKind::kAllReduce &&
        slice.count > 100) {
      static_cast<float*>(slice.buffer->data)[slice.offset] = 12345;
    }
    if (operation.kind == collective::CollectiveKind::kAllToAll) {
      static_cast<float*>(operation.sends[0].data)[0] = 12345;
    }
    return inner_->Start(operation, stream);
  }
};

class BenchRunTest : public testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/lockstep-test-XXXXXX";
    dir_ = mkdtemp(name);
    options_.json = dir_ + "/results.json";
    options_.min_bytes = options_.max_bytes = 4096;
    options_.iterations = 2;
    options_.warm_up = 0;
    options_.step.parameters = 1000;
    options_.step.tensors = 3;
    options_.step.compute_seconds = 0.0001;
  }
  void TearDown() override { RealFileSystem()->RemoveAll(dir_).IgnoreError(); }

  // The first result; *wrong as RunBench says.
  nlohmann::json Run(bool corrupts, bool* wrong) {
    auto self = FormCommunicator(collective::CommunicatorOptions());
    EXPECT_TRUE(self.ok());
    std::unique_ptr<collective::Communicator> communicator = *std::move(self);
    if (corrupts) {
      communicator =
          std::make_unique<WrongCommunicator>(std::move(communicator));
    }
    *wrong = false;
    const Status status = RunBench(options_, communicator.get(), wrong);
    EXPECT_TRUE(status.ok()) << status;
    return nlohmann::json::parse(
        *RealFileSystem()->Read(options_.json))["results"][0];
  }

  std::string dir_;
  BenchOptions options_;
};

TEST_F(BenchRunTest, OfCollectives) {
  options_.collectives = {collective::CollectiveKind::kAllReduce};
  bool wrong = false;
  EXPECT_EQ(Run(true, &wrong)["in_place"]["wrong"], 1);
  EXPECT_TRUE(wrong);
  EXPECT_EQ(Run(false, &wrong)["in_place"]["wrong"], 0);
  EXPECT_FALSE(wrong);
  options_.check = false;
  EXPECT_FALSE(Run(true, &wrong)["in_place"].contains("wrong"));
  EXPECT_FALSE(wrong);
}

TEST_F(BenchRunTest, OfAnAllToAll) {
  options_.collectives = {collective::CollectiveKind::kAllToAll};
  bool wrong = false;
  EXPECT_EQ(Run(true, &wrong)["out_of_place"]["wrong"], 1);
  EXPECT_TRUE(wrong);
  const nlohmann::json result = Run(false, &wrong);
  EXPECT_EQ(result["out_of_place"]["wrong"], 0);
  EXPECT_EQ(result["bytes"], 4096);
  EXPECT_FALSE(wrong);
}

TEST_F(BenchRunTest, OfSteps) {
  options_.steps = true;
  bool wrong = false;
  EXPECT_EQ(Run(true, &wrong)["wrong"], 1);
  EXPECT_TRUE(wrong);
  EXPECT_EQ(Run(false, &wrong)["wrong"], 0);
  EXPECT_FALSE(wrong);
}

}  // namespace
}  // namespace lockstep::worker::bench
