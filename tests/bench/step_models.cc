#include "tests/bench/step_models.h"

#include <torch/version.h>

#include <cmath>
#include <exception>
#include <fstream>
#include <limits>
#include <random>
#include <utility>

#include "worker/trainer/models.h"

namespace lockstep {
namespace {

using worker::data::Batch;
using worker::trainer::Classifier;
using worker::trainer::ModelOptions;

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

constexpr StepShape kShapes[] = {{"shallow", "shallow", {28, 28, 1}, 10, 64},
                                 {"cnn", "resnet", {64, 64, 3}, 10, 16},
                                 {"resnet50", "", {64, 64, 3}, 1000, 4}};

// The network of this shape, with weights of its own. May throw what LibTorch
// throws.
StatusOr<std::shared_ptr<Classifier>> MakeStepNetwork(const StepShape& shape) {
  torch::manual_seed(kStepSeed);
  if (*shape.network == '\0') {
    return std::shared_ptr<Classifier>(
        std::make_shared<Resnet50>(shape.classes));
  }
  ModelOptions options;
  options.name = shape.network;
  options.blocks = 2;
  options.shape = shape.shape;
  options.classes = shape.classes;
  return MakeClassifier(options);
}

// As Replica makes them: (samples, channels, height, width), -1 to 1.
torch::Tensor ImagesOf(const StepModel& model, const Batch& batch) {
  const auto count = static_cast<int64_t>(batch.count);
  return torch::from_blob(const_cast<uint8_t*>(batch.pixels.data()),
                          {count, model.shape.height, model.shape.width,
                           model.shape.channels},
                          torch::kUInt8)
      .permute({0, 3, 1, 2})
      .contiguous()
      .to(torch::kFloat32)
      .mul_(1 / 127.5)
      .sub_(1);
}

torch::Tensor LabelsOf(const Batch& batch) {
  return torch::from_blob(const_cast<int32_t*>(batch.labels.data()),
                          {static_cast<int64_t>(batch.count)}, torch::kInt32)
      .to(torch::kInt64);
}

Status Write(const std::string& path,
             const std::vector<std::pair<const void*, size_t>>& parts) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  for (const auto& [data, size] : parts) {
    file.write(static_cast<const char*>(data),
               static_cast<std::streamsize>(size));
  }
  file.close();
  if (!file) return Unavailable("{} cannot be written", path);
  return OkStatus();
}

double Length(const std::vector<double>& values) {
  double sum = 0;
  for (const double value : values) sum += value * value;
  return std::sqrt(sum);
}

}  // namespace

StatusOr<StepModel> MakeStepModel(const std::string& name) try {
  for (const StepShape& shape : kShapes) {
    if (name != shape.name) continue;
    StepModel model{shape, nullptr};
    LOCKSTEP_ASSIGN_OR_RETURN(std::shared_ptr<Classifier> network,
                              MakeStepNetwork(shape));
    LOCKSTEP_ASSIGN_OR_RETURN(model.replica,
                              MakeReplica(std::move(network), model.shape));
    return model;
  }
  return InvalidArgument("no model {}", name);
} catch (const std::exception& error) {
  return Internal("making the model: {}", error.what());
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

StatusOr<std::vector<std::vector<double>>> ReferenceGradients(
    const StepModel& model, int ranks) try {
  LOCKSTEP_ASSIGN_OR_RETURN(const std::shared_ptr<Classifier> network,
                            MakeStepNetwork(model));
  network->to(torch::kFloat64);
  network->train();
  std::vector<torch::Tensor> parameters = network->parameters();
  if (parameters.size() != model.replica->parameters()) {
    return Internal("the reference is another network");
  }
  for (size_t i = 0; i < parameters.size(); ++i) {
    const std::span<float> values = model.replica->values(i);
    if (parameters[i].numel() != static_cast<int64_t>(values.size())) {
      return Internal("parameter {} of the reference has another size", i);
    }
    torch::NoGradGuard no_grad;
    parameters[i].copy_(torch::from_blob(values.data(), parameters[i].sizes(),
                                         torch::kFloat32));
  }
  for (int rank = 0; rank < ranks; ++rank) {
    const Batch batch = MakeStepBatch(model, rank, ranks);
    const torch::Tensor loss = torch::nn::functional::cross_entropy(
        network->forward(ImagesOf(model, batch).to(torch::kFloat64)),
        LabelsOf(batch),
        torch::nn::functional::CrossEntropyFuncOptions().reduction(
            torch::kSum));
    (loss / static_cast<double>(batch.global_count)).backward();
  }
  std::vector<std::vector<double>> gradients;
  for (const torch::Tensor& parameter : parameters) {
    const torch::Tensor gradient = parameter.grad().contiguous();
    const double* const data = gradient.data_ptr<double>();
    gradients.emplace_back(data, data + gradient.numel());
  }
  return gradients;
} catch (const std::exception& error) {
  return Internal("computing the reference: {}", error.what());
}

std::string TorchVersion() { return TORCH_VERSION; }

double GradientError(const std::vector<std::span<const float>>& gradient,
                     const std::vector<std::vector<double>>& reference) {
  std::vector<double> lengths;
  for (const auto& one : reference) lengths.push_back(Length(one));
  const double all = Length(lengths);
  double worst = 0;
  for (size_t i = 0; i < reference.size(); ++i) {
    double sum = 0;
    for (size_t k = 0; k < reference[i].size(); ++k) {
      const double gap = gradient[i][k] - reference[i][k];
      sum += gap * gap;
    }
    const double error = std::sqrt(sum) / (lengths[i] + 1e-4 * all);
    if (!(error <= worst)) worst = error;
    if (std::isnan(worst)) return std::numeric_limits<double>::infinity();
  }
  return worst;
}

Status ExportStart(const std::string& path, const StepModel& model,
                   const Batch& batch, int rank) {
  if (rank == 0) {
    std::vector<std::pair<const void*, size_t>> parts;
    for (size_t i = 0; i < model.replica->parameters(); ++i) {
      const std::span<float> values = model.replica->values(i);
      parts.emplace_back(values.data(), values.size_bytes());
    }
    LOCKSTEP_RETURN_IF_ERROR(Write(path + ".weights", parts));
  }
  const torch::Tensor images = ImagesOf(model, batch);
  return Write(fmt::format("{}.batch-{}", path, rank),
               {{images.data_ptr<float>(), images.nbytes()},
                {batch.labels.data(), batch.labels.size() * sizeof(int32_t)}});
}

}  // namespace lockstep
