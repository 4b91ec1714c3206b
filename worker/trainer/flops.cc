#include "worker/trainer/flops.h"

#include <algorithm>

namespace lockstep::worker::trainer {
namespace {

// Sums up the layers of a model as an image goes through them.
class Counter {
 public:
  explicit Counter(const data::ImageShape& shape)
      : channels_(shape.channels), height_(shape.height), width_(shape.width) {}

  // Padded by half the kernel.
  void Conv(int64_t out, int64_t kernel, int64_t stride) {
    Shrink(kernel, kernel / 2, stride);
    Layer(channels_ * kernel * kernel * out * height_ * width_);
    channels_ = out;
  }
  void Pool(int64_t kernel, int64_t padding, int64_t stride) {
    Shrink(kernel, padding, stride);
  }
  void Flatten() {
    channels_ *= height_ * width_;
    height_ = width_ = 1;
  }
  void Mean() { height_ = width_ = 1; }
  void Linear(int64_t out) {
    Layer(channels_ * out);
    channels_ = out;
  }
  // What models.cc calls a ResidualBlock.
  void Residual(int64_t out, int64_t stride) {
    Counter shortcut = *this;
    const bool projects = stride != 1 || channels_ != out;
    Conv(out, 3, stride);
    Conv(out, 3, 1);
    if (!projects) return;
    shortcut.flops_ = 0;
    shortcut.Conv(out, 1, stride);
    flops_ += shortcut.flops_;
  }
  double flops() const { return flops_; }

 private:
  void Shrink(int64_t kernel, int64_t padding, int64_t stride) {
    height_ = (height_ + 2 * padding - kernel) / stride + 1;
    width_ = (width_ + 2 * padding - kernel) / stride + 1;
  }
  // Counts the forward pass, the gradient of the weights, and the gradient of
  // the input, which the first layer (the image) does not need. Each is a
  // product with `multiplications` multiplications and as many additions.
  void Layer(int64_t multiplications) {
    flops_ += (first_ ? 2 : 3) * 2 * static_cast<double>(multiplications);
    first_ = false;
  }

  int64_t channels_;
  int64_t height_;
  int64_t width_;
  bool first_ = true;
  double flops_ = 0;
};

}  // namespace

double FlopsPerSample(const ModelOptions& options) {
  Counter count(options.shape);
  if (options.name == "cnn") {
    count.Conv(32, 3, 1);
    count.Pool(2, 0, 2);
    count.Conv(64, 3, 1);
    count.Pool(2, 0, 2);
    count.Flatten();
    count.Linear(128);
    count.Linear(options.classes);
  } else if (options.name == "resnet") {
    const bool large = std::max(options.shape.height, options.shape.width) > 64;
    count.Conv(32, large ? 7 : 3, large ? 2 : 1);
    if (large) count.Pool(3, 1, 2);
    for (int64_t stage = 0; stage < 4; ++stage) {
      count.Residual(int64_t{32} << stage, stage == 0 ? 1 : 2);
    }
    count.Mean();
    count.Linear(options.classes);
  }
  return count.flops();
}

}  // namespace lockstep::worker::trainer
