// The model, without what reduces its gradients.
#include "worker/trainer/replica.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "worker/trainer/optimizer.h"
#include "worker/trainer/train_state.h"

namespace lockstep::worker::trainer {
namespace {

using data::Batch;
using data::ImageShape;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

ModelOptions Options(const std::string& name, ImageShape shape) {
  ModelOptions options;
  options.name = name;
  options.shape = shape;
  options.classes = 4;
  options.seed = 7;
  return options;
}

std::unique_ptr<Replica> Make(const ModelOptions& options, int rank = 0) {
  auto replica = Replica::Create(options, rank);
  EXPECT_TRUE(replica.ok()) << replica.status();
  return replica.ok() ? *std::move(replica) : nullptr;
}

// Images that differ, with labels 0..3 in turn.
Batch MakeBatch(ImageShape shape, uint64_t count) {
  Batch batch;
  batch.count = count;
  batch.global_count = count;
  for (uint64_t i = 0; i < count * shape.bytes(); ++i) {
    batch.pixels.push_back(static_cast<uint8_t>((i * 37 + i / 11) % 256));
  }
  for (uint64_t i = 0; i < count; ++i) {
    batch.labels.push_back(static_cast<int32_t>(i % 4));
  }
  return batch;
}

std::map<size_t, std::vector<float>> Gradients(Replica* replica,
                                               const Batch& batch,
                                               double* loss = nullptr) {
  std::map<size_t, std::vector<float>> gradients;
  auto sum =
      replica->Backward(batch, [&](size_t i, std::span<const float> gradient) {
        EXPECT_TRUE(gradients
                        .emplace(i, std::vector<float>(gradient.begin(),
                                                       gradient.end()))
                        .second)
            << "twice";
        return OkStatus();
      });
  EXPECT_TRUE(sum.ok()) << sum.status();
  if (sum.ok() && loss != nullptr) *loss = *sum;
  return gradients;
}

TEST(ReplicaTest, HasPyTorchsNames) {
  const auto replica = Make(Options("cnn", {8, 8, 1}));
  std::vector<std::string> names;
  for (const auto& tensor : replica->tensors()) names.push_back(tensor.name);
  EXPECT_THAT(
      names, ElementsAre("conv1.weight", "conv1.bias", "conv2.weight",
                         "conv2.bias", "norm.weight", "norm.bias", "fc1.weight",
                         "fc1.bias", "fc2.weight", "fc2.bias"));
  EXPECT_EQ(replica->tensors()[0].shape, (std::vector<int64_t>{32, 1, 3, 3}));
}

TEST(ReplicaTest, RanksBeginEqual) {
  const ModelOptions options = Options("resnet", {16, 16, 3});
  const auto a = Make(options, 0);
  const auto b = Make(options, 1);
  EXPECT_EQ(checkpoint::StateHash(a->tensors()),
            checkpoint::StateHash(b->tensors()));
  ModelOptions other = options;
  other.seed = 8;
  EXPECT_NE(checkpoint::StateHash(a->tensors()),
            checkpoint::StateHash(Make(other)->tensors()));
}

TEST(ReplicaTest, GradientsAreThoseOfTheLoss) {
  const ImageShape shape{8, 8, 1};
  const auto replica = Make(Options("cnn", shape));
  Batch batch = MakeBatch(shape, 6);
  batch.global_count = 12;  // Half of the samples are another rank's.
  const auto gradients = Gradients(replica.get(), batch);
  ASSERT_EQ(gradients.size(), replica->parameters());
  // fc2.bias: the loss is smooth in it.
  const size_t bias = replica->parameters() - 1;
  for (size_t k = 0; k < 4; ++k) {
    float& weight = replica->values(bias)[k];
    const float before = weight;
    double up = 0;
    double down = 0;
    weight = before + 0.05f;
    Gradients(replica.get(), batch, &up);
    weight = before - 0.05f;
    Gradients(replica.get(), batch, &down);
    weight = before;
    EXPECT_NEAR(gradients.at(bias)[k], (up - down) / 0.1 / 12, 2e-3) << k;
  }
}

TEST(ReplicaTest, PartsOfABatchSumToTheWhole) {
  for (const auto& [name, shape] :
       {std::pair{"cnn", ImageShape{8, 8, 1}},
        std::pair{"resnet", ImageShape{16, 16, 3}},
        std::pair{"resnet", ImageShape{72, 72, 3}}}) {
    const auto replica = Make(Options(name, shape));
    const Batch whole = MakeBatch(shape, 8);
    auto sum = Gradients(replica.get(), whole);
    for (int part = 0; part < 2; ++part) {
      Batch half = whole;
      half.count = 4;
      half.labels = {whole.labels.begin() + part * 4,
                     whole.labels.begin() + part * 4 + 4};
      const auto size = static_cast<ptrdiff_t>(4 * shape.bytes());
      half.pixels = {whole.pixels.begin() + part * size,
                     whole.pixels.begin() + (part + 1) * size};
      for (const auto& [i, gradient] : Gradients(replica.get(), half)) {
        for (size_t k = 0; k < gradient.size(); ++k) sum[i][k] -= gradient[k];
      }
    }
    for (const auto& [i, rest] : sum) {
      for (const float value : rest) {
        ASSERT_NEAR(value, 0, 1e-5)
            << name << " " << replica->tensors()[i].name;
      }
    }
  }
}

TEST(ReplicaTest, BackwardIsTheSameEachTime) {
  const ImageShape shape{8, 8, 1};
  const auto replica = Make(Options("cnn", shape));
  const Batch batch = MakeBatch(shape, 64);
  EXPECT_EQ(Gradients(replica.get(), batch), Gradients(replica.get(), batch));
}

TEST(ReplicaTest, LargeGradientsAreMadeInTheirPlaces) {
  ConfigureTorch(1);
  for (const auto& [name, shape] :
       {std::pair{"cnn", ImageShape{32, 32, 1}},
        std::pair{"shallow", ImageShape{28, 28, 1}},
        std::pair{"resnet", ImageShape{32, 32, 3}}}) {
    const auto replica = Make(Options(name, shape));
    const Batch batch = MakeBatch(shape, 16);
    const auto expected = Gradients(replica.get(), batch);
    std::vector<std::vector<float>> memory;
    for (size_t i = 0; i < replica->parameters(); ++i) {
      memory.emplace_back(replica->values(i).size(), -7.0f);
    }
    const std::vector<std::span<float>> places(memory.begin(), memory.end());
    for (int round = 0; round < 3; ++round) {
      std::map<size_t, std::vector<float>> got;
      size_t in_place = 0;
      const auto sum = replica->Backward(
          batch, 0, batch.count,
          [&](size_t i, std::span<const float> gradient) {
            // A copy must be able to go there.
            if (gradient.data() == memory[i].data()) {
              in_place += gradient.size_bytes();
            } else {
              std::copy(gradient.begin(), gradient.end(), memory[i].begin());
            }
            got[i] = memory[i];
            return OkStatus();
          },
          places);
      ASSERT_TRUE(sum.ok()) << sum.status();
      EXPECT_EQ(got, expected) << name;
      // What came to its place stays there.
      for (const auto& [i, gradient] : got) EXPECT_EQ(memory[i], gradient) << i;
      // oneDNN makes the gradients of larger convolutions in memory of its own.
      EXPECT_TRUE(in_place > 0 || name == std::string("resnet"));
    }
  }
}

TEST(ReplicaTest, AFailedBackwardFreesThePlaces) {
  ConfigureTorch(1);
  const ImageShape shape{28, 28, 1};
  const auto replica = Make(Options("shallow", shape));
  std::vector<std::vector<float>> memory;
  for (size_t i = 0; i < replica->parameters(); ++i) {
    memory.emplace_back(replica->values(i).size());
  }
  const std::vector<std::span<float>> places(memory.begin(), memory.end());
  for (int round = 0; round < 2; ++round) {
    bool in_place = false;
    const auto failed = replica->Backward(
        MakeBatch(shape, 4), 0, 4,
        [&](size_t i, std::span<const float> gradient) -> Status {
          in_place = in_place || gradient.data() == memory[i].data();
          return i == 2 ? Aborted("cut") : OkStatus();
        },
        places);
    EXPECT_EQ(failed.status().code(), StatusCode::kAborted);
    EXPECT_TRUE(in_place);
  }
  // Evaluations allocate where they always did.
  EXPECT_TRUE(replica->Evaluate(MakeBatch(shape, 4)).ok());
}

TEST(ReplicaTest, APartOfABatchIsItsOwn) {
  const ImageShape shape{8, 8, 1};
  const auto replica = Make(Options("cnn", shape));
  const Batch batch = MakeBatch(shape, 8);
  std::map<size_t, std::vector<float>> sums = Gradients(replica.get(), batch);
  double loss = *replica->Backward(
      batch, [](size_t, std::span<const float>) { return OkStatus(); });
  for (uint64_t first = 0; first < 8; first += 3) {
    const auto part =
        replica->Backward(batch, first, std::min<uint64_t>(3, 8 - first),
                          [&](size_t i, std::span<const float> gradient) {
                            for (size_t k = 0; k < gradient.size(); ++k) {
                              sums[i][k] -= gradient[k];
                            }
                            return OkStatus();
                          });
    ASSERT_TRUE(part.ok()) << part.status();
    loss -= *part;
  }
  EXPECT_NEAR(loss, 0, 1e-4);
  for (const auto& [i, rest] : sums) {
    for (const float value : rest) ASSERT_NEAR(value, 0, 1e-5) << i;
  }
}

TEST(ReplicaTest, AnErrorOfTheSinkEndsTheBackward) {
  const ImageShape shape{8, 8, 1};
  const auto replica = Make(Options("cnn", shape));
  int calls = 0;
  const auto result = replica->Backward(
      MakeBatch(shape, 4), [&](size_t, std::span<const float>) -> Status {
        ++calls;
        return Aborted("cut");
      });
  EXPECT_EQ(result.status().code(), StatusCode::kAborted);
  EXPECT_EQ(calls, 1);
}

TEST(ReplicaTest, EvaluationCountsWhatTheModelSays) {
  const ImageShape shape{8, 8, 1};
  const auto replica = Make(Options("cnn", shape));
  // All zero but for class 2: it is named for every image.
  for (size_t i = 0; i < replica->parameters(); ++i) {
    for (float& value : replica->values(i)) value = 0;
  }
  replica->values(replica->parameters() - 1)[2] = 1;
  const auto sums = replica->Evaluate(MakeBatch(shape, 10));
  ASSERT_TRUE(sums.ok()) << sums.status();
  EXPECT_EQ(sums->samples, 10u);
  EXPECT_EQ(sums->correct, 2u);  // Labels 2 and 6 of 0 1 2 3 0 1 2 3 0 1.
  const double other = std::log(3 + std::exp(1.0));
  EXPECT_NEAR(sums->loss, 8 * other + 2 * (other - 1), 1e-5);
}

TEST(ReplicaTest, TooSmallImagesAreRefused) {
  const auto replica = Replica::Create(Options("cnn", {2, 2, 1}), 0);
  EXPECT_THAT(Message(replica.status()), HasSubstr("2 x 2 x 1"));
}

TEST(ReplicaTest, RandomNumbersAreSavedWhole) {
  const ModelOptions options = Options("cnn", {8, 8, 1});
  const auto first = Make(options, 0);
  const std::string rng0 = *first->SaveRng();
  const auto second = Make(options, 1);  // The generator is the process's.
  EXPECT_NE(*second->SaveRng(), rng0);
  ASSERT_TRUE(second->RestoreRng(rng0).ok());
  EXPECT_EQ(*second->SaveRng(), rng0);
  EXPECT_EQ(second->RestoreRng("short").code(), StatusCode::kDataLoss);
}

TEST(ReplicaTest, RandomNumbersOfAShardAreThoseOfAnyRank) {
  const ModelOptions options = Options("cnn", {8, 8, 1});
  const auto own = Make(options, 2);
  ASSERT_TRUE(own->SeedShard(7, 5, 2).ok());
  const std::string expected = *own->SaveRng();
  // On another rank, after another shard.
  const auto other = Make(options, 0);
  ASSERT_TRUE(other->SeedShard(7, 5, 0).ok());
  std::set<std::string> seen = {*other->SaveRng()};
  ASSERT_TRUE(other->SeedShard(7, 5, 2).ok());
  EXPECT_EQ(*other->SaveRng(), expected);
  // Each shard of each step, and each seed, has others.
  seen.insert(expected);
  for (int64_t step = 6; step < 9; ++step) {
    for (int shard = 0; shard < 3; ++shard) {
      for (uint64_t seed : {7u, 8u}) {
        ASSERT_TRUE(other->SeedShard(seed, step, shard).ok());
        EXPECT_TRUE(seen.insert(*other->SaveRng()).second)
            << seed << " " << step << " " << shard;
      }
    }
  }
}

TEST(TrainProgressTest, SurvivesItsText) {
  TrainProgress progress;
  progress.step = 123;
  progress.cursor = {4, 5600};
  progress.Observe(0.1 + 0.2, 1.0 / 3, 2);
  const auto decoded = DecodeTrainProgress(EncodeTrainProgress(progress));
  ASSERT_TRUE(decoded.ok()) << decoded.status();
  EXPECT_EQ(*decoded, progress);
  for (const char* bad : {"", "{}", "[1]", "{\"step\": \"x\"}"}) {
    EXPECT_EQ(DecodeTrainProgress(bad).status().code(), StatusCode::kDataLoss);
  }
}

TEST(TrainProgressTest, StopsAfterItsPatience) {
  TrainProgress progress;
  progress.Observe(0.5, 1, 2);
  progress.Observe(0.5, 1, 2);
  EXPECT_FALSE(progress.stopped_early);
  progress.Observe(0.6, 1, 2);
  progress.Observe(0.4, 1, 2);
  EXPECT_FALSE(progress.stopped_early);
  progress.Observe(0.6, 1, 2);
  EXPECT_TRUE(progress.stopped_early);
  EXPECT_EQ(progress.best_accuracy, 0.6);
}

}  // namespace
}  // namespace lockstep::worker::trainer
