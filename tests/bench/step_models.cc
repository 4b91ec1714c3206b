#include "tests/bench/step_models.h"

#include <random>
#include <utility>
#include <vector>

#include "worker/trainer/models.h"

namespace lockstep {
namespace {

namespace nn = torch::nn;

nn::Conv2d Conv(int64_t in, int64_t out, int64_t kernel, int64_t stride) {
  return nn::Conv2d(nn::Conv2dOptions(in, out, kernel)
                        .stride(stride)
                        .padding(kernel / 2)
                        .bias(false));
}

// He et al., "Deep Residual Learning", figure 5, with the stride in the middle
// as torchvision has it.
class Bottleneck final : public nn::Module {
 public:
  Bottleneck(int64_t in, int64_t width, int64_t stride)
      : main_(register_module(
            "main",
            nn::Sequential(Conv(in, width, 1, 1), nn::BatchNorm2d(width),
                           nn::ReLU(), Conv(width, width, 3, stride),
                           nn::BatchNorm2d(width), nn::ReLU(),
                           Conv(width, width * 4, 1, 1),
                           nn::BatchNorm2d(width * 4)))) {
    if (stride != 1 || in != width * 4) {
      down_ =
          register_module("down", nn::Sequential(Conv(in, width * 4, 1, stride),
                                                 nn::BatchNorm2d(width * 4)));
    }
  }
  torch::Tensor forward(const torch::Tensor& x) {
    return torch::relu(main_->forward(x) + (down_ ? down_->forward(x) : x));
  }

 private:
  nn::Sequential main_;
  nn::Sequential down_{nullptr};
};

class Resnet50 final : public Classifier {
 public:
  explicit Resnet50(int64_t classes)
      : stem_(register_module(
            "stem", nn::Sequential(Conv(3, 64, 7, 2), nn::BatchNorm2d(64),
                                   nn::ReLU()))) {
    int64_t in = 64;
    const int64_t blocks[] = {3, 4, 6, 3};
    for (int64_t stage = 0; stage < 4; ++stage) {
      const int64_t width = int64_t{64} << stage;
      for (int64_t block = 0; block < blocks[stage]; ++block) {
        stages_->push_back(
            Bottleneck(in, width, stage > 0 && block == 0 ? 2 : 1));
        in = width * 4;
      }
    }
    register_module("stages", stages_);
    fc_ = register_module("fc", nn::Linear(in, classes));
  }
  torch::Tensor forward(torch::Tensor x) override {
    x = torch::max_pool2d(stem_->forward(x), 3, 2, 1);
    return fc_(stages_->forward(x).mean({2, 3}));
  }

 private:
  nn::Sequential stem_;
  nn::Sequential stages_;
  nn::Linear fc_{nullptr};
};

// What Replica makes itself of the trainer's own networks; InvalidArgument for
// an unknown name.
StatusOr<ModelOptions> OptionsOf(const std::string& name) {
  ModelOptions options;
  options.seed = kStepSeed;
  if (name == "shallow") {
    options.name = "shallow";
    options.shape = {28, 28, 1};
    options.classes = 10;
  } else if (name == "cnn") {
    options.name = "resnet";
    options.blocks = 2;
    options.shape = {64, 64, 3};
    options.classes = 10;
  } else if (name == "resnet50") {
    options.name = name;
    options.shape = {64, 64, 3};
    options.classes = 1000;
  } else {
    return InvalidArgument("no model {}", name);
  }
  return options;
}

uint64_t SamplesOf(const std::string& name) {
  return name == "shallow" ? 64 : name == "cnn" ? 16 : 4;
}

}  // namespace

StatusOr<std::shared_ptr<Classifier>> MakeStepNetwork(const std::string& name) {
  LOCKSTEP_ASSIGN_OR_RETURN(const ModelOptions options, OptionsOf(name));
  if (name != "resnet50") return MakeClassifier(options);
  return std::shared_ptr<Classifier>(
      std::make_shared<Resnet50>(options.classes));
}

StatusOr<StepModel> MakeStepModel(const std::string& name, int rank) {
  LOCKSTEP_ASSIGN_OR_RETURN(const ModelOptions options, OptionsOf(name));
  StepModel model;
  model.shape = options.shape;
  model.classes = options.classes;
  model.batch = SamplesOf(name);
  if (name == "resnet50") {
    torch::manual_seed(kStepSeed);
    LOCKSTEP_ASSIGN_OR_RETURN(std::shared_ptr<Classifier> network,
                              MakeStepNetwork(name));
    LOCKSTEP_ASSIGN_OR_RETURN(model.replica,
                              MakeReplica(std::move(network), model.shape));
  } else {
    LOCKSTEP_ASSIGN_OR_RETURN(model.replica, Replica::Create(options, rank));
  }
  return model;
}

Batch MakeStepBatch(const StepModel& model, int rank, int ranks) {
  std::mt19937 random(static_cast<uint32_t>(rank) + 1);
  Batch batch;
  batch.count = model.batch;
  batch.global_count = model.batch * static_cast<uint64_t>(ranks);
  batch.pixels.resize(model.batch * model.shape.bytes());
  for (uint8_t& pixel : batch.pixels) pixel = static_cast<uint8_t>(random());
  for (uint64_t i = 0; i < model.batch; ++i) {
    batch.labels.push_back(
        static_cast<int32_t>(random() % static_cast<uint32_t>(model.classes)));
  }
  return batch;
}

}  // namespace lockstep
