#include "worker/trainer/models.h"

#include <algorithm>

namespace lockstep::worker::trainer {
namespace {

namespace nn = torch::nn;

nn::Conv2d Conv(int64_t in, int64_t out, int64_t kernel, int64_t stride,
                bool bias) {
  return nn::Conv2d(nn::Conv2dOptions(in, out, kernel)
                        .stride(stride)
                        .padding(kernel / 2)
                        .bias(bias));
}

// Groups of 16 channels, the setting that Wu and He recommend ("Group
// Normalization", section 4.1).
nn::GroupNorm Norm(int64_t channels) {
  return nn::GroupNorm(
      nn::GroupNormOptions(std::max<int64_t>(channels / 16, 1), channels));
}

// Two 3x3 convolutions, each halving the image by a maximum, then two dense
// layers: LeNet with today's parts.
class Cnn final : public Classifier {
 public:
  explicit Cnn(const ModelOptions& options)
      : flat_(64 * (options.shape.height / 4) * (options.shape.width / 4)),
        conv1_(register_module("conv1",
                               Conv(options.shape.channels, 32, 3, 1, true))),
        conv2_(register_module("conv2", Conv(32, 64, 3, 1, true))),
        norm_(register_module("norm", Norm(64))),
        fc1_(register_module("fc1", nn::Linear(flat_, 128))),
        fc2_(register_module("fc2", nn::Linear(128, options.classes))) {}

  torch::Tensor forward(torch::Tensor x) override {
    x = torch::max_pool2d(torch::relu(conv1_(x)), 2);
    x = torch::max_pool2d(torch::relu(conv2_(x)), 2);
    x = norm_(x).flatten(1);
    return fc2_(torch::relu(fc1_(x)));
  }

 private:
  const int64_t flat_;
  nn::Conv2d conv1_;
  nn::Conv2d conv2_;
  nn::GroupNorm norm_;
  nn::Linear fc1_;
  nn::Linear fc2_;
};

// One 3x3 convolution without padding and two dense layers: the model with
// which tutorials of multi-worker training begin. Nearly all of its weights are
// in one matrix, so that it reduces much for what it computes.
class Shallow final : public Classifier {
 public:
  explicit Shallow(const ModelOptions& options)
      : flat_(32 * (options.shape.height - 2) * (options.shape.width - 2)),
        conv1_(register_module("conv1", nn::Conv2d(nn::Conv2dOptions(
                                            options.shape.channels, 32, 3)))),
        fc1_(register_module("fc1", nn::Linear(flat_, 128))),
        fc2_(register_module("fc2", nn::Linear(128, options.classes))) {}

  torch::Tensor forward(torch::Tensor x) override {
    x = torch::relu(conv1_(x)).flatten(1);
    return fc2_(torch::relu(fc1_(x)));
  }

 private:
  const int64_t flat_;
  nn::Conv2d conv1_;
  nn::Linear fc1_;
  nn::Linear fc2_;
};

// The basic block of He et al., "Deep Residual Learning", figure 2.
class ResidualBlock final : public nn::Module {
 public:
  ResidualBlock(int64_t in, int64_t out, int64_t stride)
      : conv1_(register_module("conv1", Conv(in, out, 3, stride, false))),
        norm1_(register_module("norm1", Norm(out))),
        conv2_(register_module("conv2", Conv(out, out, 3, 1, false))),
        norm2_(register_module("norm2", Norm(out))) {
    if (stride != 1 || in != out) {
      downsample_ = register_module(
          "downsample",
          nn::Sequential(Conv(in, out, 1, stride, false), Norm(out)));
    }
    // The block begins as the identity (Goyal et al., section 5.1).
    torch::NoGradGuard no_grad;
    norm2_->weight.zero_();
  }

  torch::Tensor forward(const torch::Tensor& x) {
    torch::Tensor y = torch::relu(norm1_(conv1_(x)));
    y = norm2_(conv2_(y));
    return torch::relu(y + (downsample_ ? downsample_->forward(x) : x));
  }

 private:
  nn::Conv2d conv1_;
  nn::GroupNorm norm1_;
  nn::Conv2d conv2_;
  nn::GroupNorm norm2_;
  nn::Sequential downsample_{nullptr};
};

// Four stages with one block each, unless asked otherwise: a ResNet-10 of half
// the usual width, with torchvision's names. Images above 64 pixels get its 7x7
// stem.
class Resnet final : public Classifier {
 public:
  explicit Resnet(const ModelOptions& options)
      : large_(std::max(options.shape.height, options.shape.width) > 64),
        conv1_(register_module(
            "conv1", large_ ? Conv(options.shape.channels, 32, 7, 2, false)
                            : Conv(options.shape.channels, 32, 3, 1, false))),
        norm1_(register_module("norm1", Norm(32))) {
    int64_t in = 32;
    for (int64_t stage = 0; stage < 4; ++stage) {
      const int64_t out = int64_t{32} << stage;
      stages_.push_back(register_module(
          "layer" + std::to_string(stage + 1),
          nn::Sequential(ResidualBlock(in, out, stage == 0 ? 1 : 2))));
      for (int64_t block = 1; block < options.blocks; ++block) {
        stages_.back()->push_back(ResidualBlock(out, out, 1));
      }
      in = out;
    }
    fc_ = register_module("fc", nn::Linear(in, options.classes));
    InitConvolutions();
  }

  torch::Tensor forward(torch::Tensor x) override {
    x = torch::relu(norm1_(conv1_(x)));
    if (large_) x = torch::max_pool2d(x, 3, 2, 1);
    for (nn::Sequential& stage : stages_) x = stage->forward(x);
    return fc_(x.mean({2, 3}));
  }

 private:
  void InitConvolutions() {
    for (const auto& module : modules(/*include_self=*/false)) {
      if (auto* conv = module->as<nn::Conv2dImpl>()) {
        nn::init::kaiming_normal_(conv->weight, 0, torch::kFanOut,
                                  torch::kReLU);
      }
    }
  }

  const bool large_;
  nn::Conv2d conv1_;
  nn::GroupNorm norm1_;
  std::vector<nn::Sequential> stages_;
  nn::Linear fc_{nullptr};
};

}  // namespace

StatusOr<std::shared_ptr<Classifier>> MakeClassifier(
    const ModelOptions& options) {
  const uint32_t side = std::min(options.shape.height, options.shape.width);
  if (side < 4) {
    return InvalidArgument(
        "model {} needs images of at least 4 x 4 pixels, but these are {}",
        options.name, FormatShape(options.shape));
  }
  std::shared_ptr<Classifier> model;
  if (options.name == "cnn") {
    model = std::make_shared<Cnn>(options);
  } else if (options.name == "shallow") {
    model = std::make_shared<Shallow>(options);
  } else if (options.name == "resnet") {
    model = std::make_shared<Resnet>(options);
  } else {
    return InvalidArgument("unknown model '{}': use cnn, shallow or resnet",
                           options.name);
  }
  return model;
}

}  // namespace lockstep::worker::trainer
