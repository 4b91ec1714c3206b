#include "worker/trainer/replica.h"

#include <torch/torch.h>

#include <cstring>
#include <exception>
#include <new>
#include <utility>

#include "worker/trainer/gradient_places.h"
#include "worker/trainer/models.h"

namespace lockstep::worker::trainer {
namespace {

using data::Batch;
using data::ImageShape;

// LibTorch's exceptions end here.
template <typename Function>
auto Guarded(const char* what, Function function) -> decltype(function()) {
  try {
    return function();
  } catch (const c10::Error& error) {
    return Internal("{}: {}", what, error.what_without_backtrace());
  } catch (const std::bad_alloc&) {
    return ResourceExhausted("{}: out of memory", what);
  } catch (const std::exception& error) {
    return Internal("{}: {}", what, error.what());
  }
}

at::Generator DefaultGenerator() {
  return at::detail::getDefaultCPUGenerator();
}

// The number after `number` steps of SplitMix64 from `seed`.
uint64_t Mix(uint64_t seed, uint64_t number) {
  uint64_t x = seed + 0x9e3779b97f4a7c15u * (number + 1);
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

// Different for each rank, and never the seed of the weights.
uint64_t RankSeed(uint64_t seed, int rank) {
  return Mix(seed, static_cast<uint64_t>(rank));
}

// Mixed after each number, so that no sum of two of them counts.
uint64_t ShardSeed(uint64_t seed, int64_t step, int shard) {
  return Mix(Mix(Mix(seed, 0), static_cast<uint64_t>(step)),
             static_cast<uint64_t>(shard));
}

}  // namespace

void ConfigureTorch(int threads) {
  at::set_num_threads(threads);
  at::globalContext().setDeterministicAlgorithms(true, /*warn_only=*/false);
  GradientPlaces::Install();
}

class Replica::Impl {
 public:
  Impl(std::shared_ptr<Classifier> model, ImageShape shape)
      : model_(std::move(model)), shape_(shape) {
    for (const auto& item : model_->named_parameters()) {
      torch::Tensor parameter = item.value();
      const size_t i = parameters_.size();
      tensors_.push_back({.name = item.key(),
                          .dtype = checkpoint::DType::kF32,
                          .shape = parameter.sizes().vec(),
                          .data = parameter.data_ptr<float>(),
                          .bytes = parameter.nbytes()});
      // Called once in each backward, when all uses of the parameter have
      // been summed, by the thread that called backward.
      parameter.register_hook([this, i](const torch::Tensor& gradient) {
        TakeGradient(i, gradient);
      });
      parameters_.push_back(std::move(parameter));
    }
  }

  const std::vector<checkpoint::TensorView>& tensors() const {
    return tensors_;
  }
  std::span<float> values(size_t i) {
    return {parameters_[i].data_ptr<float>(),
            static_cast<size_t>(parameters_[i].numel())};
  }

  StatusOr<double> Backward(const Batch& batch, uint64_t first, uint64_t count,
                            const GradientSink& sink,
                            std::span<const std::span<float>> places) {
    const torch::Tensor logits = model_->forward(Images(batch, first, count));
    const torch::Tensor loss = torch::nn::functional::cross_entropy(
        logits, Labels(batch, first, count),
        torch::nn::functional::CrossEntropyFuncOptions().reduction(
            torch::kSum));
    const Running running(this, &sink, places);
    (loss / static_cast<double>(batch.global_count)).backward();
    running.End();
    LOCKSTEP_RETURN_IF_ERROR(sink_status_);
    if (taken_ != parameters_.size()) {
      return Internal(
          "the backward pass returned {} gradients for {} parameters", taken_,
          parameters_.size());
    }
    return loss.item<double>();
  }

  StatusOr<EvaluationSums> Evaluate(const Batch& batch) {
    torch::NoGradGuard no_grad;
    const torch::Tensor logits = model_->forward(Images(batch, 0, batch.count));
    const torch::Tensor labels = Labels(batch, 0, batch.count);
    EvaluationSums sums;
    sums.samples = batch.count;
    sums.correct = logits.argmax(1).eq(labels).sum().item<int64_t>();
    // In double, sample by sample: the sum hardly depends on the batches.
    sums.loss = torch::nn::functional::cross_entropy(
                    logits, labels,
                    torch::nn::functional::CrossEntropyFuncOptions().reduction(
                        torch::kNone))
                    .to(torch::kFloat64)
                    .sum()
                    .item<double>();
    return sums;
  }

 private:
  // A backward under way, also one that ends by an exception.
  class Running {
   public:
    Running(Impl* impl, const GradientSink* sink,
            std::span<const std::span<float>> places)
        : impl_(impl) {
      impl_->sink_ = sink;
      impl_->sink_status_ = OkStatus();
      impl_->taken_ = 0;
      impl_->places_.Begin(places);
    }
    ~Running() {
      impl_->places_.End();
      impl_->sink_ = nullptr;
      impl_->late_.clear();
      for (torch::Tensor& parameter : impl_->parameters_) {
        parameter.mutable_grad() = torch::Tensor();
      }
    }
    // Tensors that only this holds are free; gradients that waited for their
    // place follow.
    void End() const {
      impl_->places_.End();
      for (torch::Tensor& parameter : impl_->parameters_) {
        parameter.mutable_grad() = torch::Tensor();
      }
      for (auto& [i, gradient] : impl_->late_) impl_->Hand(i, gradient);
    }

   private:
    Impl* const impl_;
  };

  void TakeGradient(size_t i, const torch::Tensor& gradient) {
    if (sink_ == nullptr || !sink_status_.ok()) return;
    const torch::Tensor dense = gradient.contiguous();
    if (places_.Complete(i, dense.data_ptr<float>()) ==
        GradientPlaces::Found::kPlaceInUse) {
      late_.emplace_back(i, dense);
      return;
    }
    Hand(i, dense);
  }

  void Hand(size_t i, const torch::Tensor& gradient) {
    if (!sink_status_.ok()) return;
    sink_status_ = (*sink_)(
        i, {gradient.data_ptr<float>(), static_cast<size_t>(gradient.numel())});
    ++taken_;
  }

  // (N, H, W, C) bytes to (N, C, H, W) numbers.
  torch::Tensor Images(const Batch& batch, uint64_t first,
                       uint64_t samples) const {
    const auto count = static_cast<int64_t>(samples);
    torch::Tensor images = torch::from_blob(
        const_cast<uint8_t*>(batch.pixels.data() + first * shape_.bytes()),
        {count, shape_.height, shape_.width, shape_.channels}, torch::kUInt8);
    // One channel needs no other order, but the strides of this one: by those
    // of the other LibTorch would choose its slower path.
    images = shape_.channels == 1
                 ? images.view({count, 1, shape_.height, shape_.width})
                 : images.permute({0, 3, 1, 2}).contiguous();
    return images.to(torch::kFloat32).mul_(1 / 127.5).sub_(1);
  }
  static torch::Tensor Labels(const Batch& batch, uint64_t first,
                              uint64_t count) {
    return torch::from_blob(const_cast<int32_t*>(batch.labels.data() + first),
                            {static_cast<int64_t>(count)}, torch::kInt32)
        .to(torch::kInt64);
  }

  // First, so that it goes last: tensors know it.
  GradientPlaces places_;
  const std::shared_ptr<Classifier> model_;
  const ImageShape shape_;
  std::vector<torch::Tensor> parameters_;
  std::vector<checkpoint::TensorView> tensors_;

  // Sink of the running backward pass.
  const GradientSink* sink_ = nullptr;
  Status sink_status_;
  size_t taken_ = 0;
  // Gradients whose places were in use.
  std::vector<std::pair<size_t, torch::Tensor>> late_;
};

Replica::Replica(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Replica::~Replica() = default;

StatusOr<std::unique_ptr<Replica>> Replica::Create(const ModelOptions& options,
                                                   int rank) {
  return Guarded(
      "building the model", [&]() -> StatusOr<std::unique_ptr<Replica>> {
        torch::manual_seed(options.seed);
        LOCKSTEP_ASSIGN_OR_RETURN(std::shared_ptr<Classifier> model,
                                  MakeClassifier(options));
        model->train();
        torch::manual_seed(RankSeed(options.seed, rank));
        return std::unique_ptr<Replica>(new Replica(
            std::make_unique<Impl>(std::move(model), options.shape)));
      });
}

StatusOr<std::unique_ptr<Replica>> MakeReplica(
    std::shared_ptr<Classifier> model, ImageShape shape) {
  return Guarded("building the model", [&] {
    model->train();
    return StatusOr<std::unique_ptr<Replica>>(std::unique_ptr<Replica>(
        new Replica(std::make_unique<Replica::Impl>(std::move(model), shape))));
  });
}

const std::vector<checkpoint::TensorView>& Replica::tensors() const {
  return impl_->tensors();
}

std::span<float> Replica::values(size_t i) { return impl_->values(i); }

StatusOr<double> Replica::Backward(const Batch& batch, uint64_t first,
                                   uint64_t count, const GradientSink& sink,
                                   std::span<const std::span<float>> places) {
  return Guarded("training", [&] {
    return impl_->Backward(batch, first, count, sink, places);
  });
}

StatusOr<EvaluationSums> Replica::Evaluate(const Batch& batch) {
  return Guarded("evaluating", [&] { return impl_->Evaluate(batch); });
}

Status Replica::SeedShard(uint64_t seed, int64_t step, int shard) {
  return Guarded("seeding the random number generator", [&] {
    torch::manual_seed(ShardSeed(seed, step, shard));
    return OkStatus();
  });
}

StatusOr<std::string> Replica::SaveRng() const {
  return Guarded(
      "saving the random number generator", []() -> StatusOr<std::string> {
        at::Generator generator = DefaultGenerator();
        const torch::Tensor state = generator.get_state();
        return std::string(static_cast<const char*>(state.data_ptr()),
                           state.nbytes());
      });
}

Status Replica::RestoreRng(std::string_view bytes) {
  return Guarded("restoring the random number generator", [&]() -> Status {
    at::Generator generator = DefaultGenerator();
    torch::Tensor state = generator.get_state().clone();
    if (state.nbytes() != bytes.size()) {
      return DataLoss(
          "the random number generator's state has {} bytes, not {}",
          bytes.size(), state.nbytes());
    }
    std::memcpy(state.data_ptr(), bytes.data(), bytes.size());
    generator.set_state(state);
    return OkStatus();
  });
}

}  // namespace lockstep::worker::trainer
