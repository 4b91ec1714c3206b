#include "worker/trainer/train_state.h"

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>

namespace lockstep::worker::trainer {
namespace {

using nlohmann::json;

// Reads json[key] where it is of the right type; else notes that.
template <typename T>
void Take(const json& from, const char* key, T* to, bool* good) {
  const auto it = from.find(key);
  if (it == from.end()) {
    *good = false;
    return;
  }
  bool fits = false;
  if constexpr (std::is_same_v<T, bool>) {
    fits = it->is_boolean();
  } else if constexpr (std::is_floating_point_v<T>) {
    fits = it->is_number();
  } else if constexpr (std::is_unsigned_v<T>) {
    fits = it->is_number_unsigned();
  } else {
    fits = it->is_number_integer();
  }
  if (fits) {
    *to = it->get<T>();
  } else {
    *good = false;
  }
}

std::string ShapeOf(const checkpoint::TensorView& tensor) {
  return fmt::format("{} ({})", checkpoint::DTypeName(tensor.dtype),
                     fmt::join(tensor.shape, ", "));
}

}  // namespace

void TrainProgress::Observe(double new_accuracy, double loss,
                            int64_t patience) {
  accuracy = new_accuracy;
  evaluation_loss = loss;
  evaluated_step = step;
  if (accuracy > best_accuracy) {
    best_accuracy = accuracy;
    evaluations_without_gain = 0;
  } else {
    ++evaluations_without_gain;
  }
  stopped_early = patience > 0 && evaluations_without_gain >= patience;
}

std::string EncodeTrainProgress(const TrainProgress& p) {
  return json{{"step", p.step},
              {"epoch", p.cursor.epoch},
              {"position", p.cursor.position},
              {"accuracy", p.accuracy},
              {"evaluation_loss", p.evaluation_loss},
              {"best_accuracy", p.best_accuracy},
              {"evaluations_without_gain", p.evaluations_without_gain},
              {"evaluated_step", p.evaluated_step},
              {"stopped_early", p.stopped_early}}
      .dump();
}

StatusOr<TrainProgress> DecodeTrainProgress(std::string_view text) {
  const json from = json::parse(text, nullptr, /*allow_exceptions=*/false);
  bool good = from.is_object();
  TrainProgress p;
  if (good) {
    Take(from, "step", &p.step, &good);
    Take(from, "epoch", &p.cursor.epoch, &good);
    Take(from, "position", &p.cursor.position, &good);
    Take(from, "accuracy", &p.accuracy, &good);
    Take(from, "evaluation_loss", &p.evaluation_loss, &good);
    Take(from, "best_accuracy", &p.best_accuracy, &good);
    Take(from, "evaluations_without_gain", &p.evaluations_without_gain, &good);
    Take(from, "evaluated_step", &p.evaluated_step, &good);
    Take(from, "stopped_early", &p.stopped_early, &good);
  }
  if (!good) {
    return DataLoss("the checkpoint's training progress is invalid");
  }
  return p;
}

std::vector<checkpoint::TensorView> StateTensors(const Replica& replica,
                                                 Optimizer* optimizer) {
  std::vector<checkpoint::TensorView> tensors = replica.tensors();
  for (const OptimizerState& state : optimizer->state()) {
    tensors.push_back({.name = state.name,
                       .dtype = checkpoint::DType::kF32,
                       .shape = replica.tensors()[state.parameter].shape,
                       .data = state.value.data(),
                       .bytes = state.value.size_bytes()});
  }
  tensors.push_back({.name = "optimizer.steps",
                     .dtype = checkpoint::DType::kI64,
                     .shape = {},
                     .data = optimizer->mutable_steps(),
                     .bytes = sizeof(int64_t)});
  return tensors;
}

Status LoadState(const checkpoint::Shard& saved,
                 std::span<const checkpoint::TensorView> tensors) {
  for (const checkpoint::TensorView& tensor : tensors) {
    const checkpoint::TensorView* from = saved.Find(tensor.name);
    if (from == nullptr) {
      return FailedPrecondition("the checkpoint has no tensor {}", tensor.name);
    }
    if (from->dtype != tensor.dtype || from->shape != tensor.shape) {
      return FailedPrecondition("tensor {} of the checkpoint is {}, not {}",
                                tensor.name, ShapeOf(*from), ShapeOf(tensor));
    }
  }
  if (saved.tensors().size() != tensors.size()) {
    return FailedPrecondition(
        "the checkpoint has {} tensors, but the job has {}",
        saved.tensors().size(), tensors.size());
  }
  for (const checkpoint::TensorView& tensor : tensors) {
    // Views are const because checkpoints only read; what these show is the
    // caller's own state.
    std::memcpy(const_cast<void*>(tensor.data), saved.Find(tensor.name)->data,
                tensor.bytes);
  }
  return OkStatus();
}

}  // namespace lockstep::worker::trainer
