#include "tests/bench/step_reference.h"

#include <torch/version.h>

#include <cmath>
#include <exception>
#include <fstream>
#include <limits>
#include <utility>

#include "worker/trainer/models.h"

namespace lockstep {
namespace {

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

class StepReference::Impl {
 public:
  explicit Impl(std::shared_ptr<Classifier> network)
      : network_(std::move(network)) {
    network_->to(torch::kFloat64);
    network_->train();
  }

  StatusOr<std::vector<std::vector<double>>> Gradients(const StepModel& model,
                                                       int ranks) {
    std::vector<torch::Tensor> parameters = network_->parameters();
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
      parameters[i].mutable_grad() = torch::Tensor();
    }
    for (int rank = 0; rank < ranks; ++rank) {
      const Batch batch = MakeStepBatch(model, rank, ranks);
      const torch::Tensor loss = torch::nn::functional::cross_entropy(
          network_->forward(ImagesOf(model, batch).to(torch::kFloat64)),
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
  }

 private:
  const std::shared_ptr<Classifier> network_;
};

StepReference::StepReference(std::unique_ptr<Impl> impl)
    : impl_(std::move(impl)) {}
StepReference::~StepReference() = default;

StatusOr<std::unique_ptr<StepReference>> StepReference::Make(
    const std::string& name) {
  try {
    LOCKSTEP_ASSIGN_OR_RETURN(std::shared_ptr<Classifier> network,
                              MakeStepNetwork(name));
    return std::unique_ptr<StepReference>(
        new StepReference(std::make_unique<Impl>(std::move(network))));
  } catch (const std::exception& error) {
    return Internal("making the reference: {}", error.what());
  }
}

StatusOr<std::vector<std::vector<double>>> StepReference::Gradients(
    const StepModel& model, int ranks) {
  try {
    return impl_->Gradients(model, ranks);
  } catch (const std::exception& error) {
    return Internal("computing the reference: {}", error.what());
  }
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
