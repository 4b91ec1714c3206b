#include "worker/devices/nvml_gpm.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace lockstep::worker::devices {
namespace {

// NVML's least time between two samples.
constexpr Duration kLeastTime = std::chrono::milliseconds(100);

}  // namespace

std::unique_ptr<NvmlGpm> NvmlGpm::Open(const nvml::Functions& functions,
                                       nvml::Device device) {
  const nvml::Functions& f = functions;
  if (!f.gpm_support || !f.gpm_alloc || !f.gpm_free || !f.gpm_sample ||
      !f.gpm_metrics) {
    return nullptr;
  }
  nvml::GpmSupport support{nvml::kGpmVersion, 0};
  if (f.gpm_support(device, &support) != nvml::kSuccess ||
      support.supported == 0) {
    return nullptr;
  }
  std::unique_ptr<NvmlGpm> gpm(new NvmlGpm(functions, device));
  if (f.gpm_alloc(&gpm->last_) != nvml::kSuccess ||
      f.gpm_alloc(&gpm->next_) != nvml::kSuccess) {
    return nullptr;
  }
  return gpm;
}

NvmlGpm::~NvmlGpm() {
  if (last_ != nullptr) functions_.gpm_free(last_);
  if (next_ != nullptr) functions_.gpm_free(next_);
}

void NvmlGpm::Measure() {
  const auto request = std::make_unique<nvml::GpmMetrics>();
  request->version = nvml::kGpmVersion;
  request->count = std::size(nvml::kGpmRows);
  request->first = last_;
  request->second = next_;
  for (size_t i = 0; i < std::size(nvml::kGpmRows); ++i) {
    request->metrics[i].id = nvml::kGpmRows[i].id;
    request->metrics[i].result = nvml::kNotSupported;
  }
  values_.fill(std::nullopt);
  if (functions_.gpm_metrics(request.get()) != nvml::kSuccess) return;
  for (size_t i = 0; i < std::size(nvml::kGpmRows); ++i) {
    const nvml::GpmMetric& metric = request->metrics[i];
    if (metric.result != nvml::kSuccess || !std::isfinite(metric.value)) {
      continue;
    }
    values_[i] = std::clamp(metric.value, 0.0, 100.0) / 100;
  }
}

void NvmlGpm::Read(MonoTime now, GpuReading* reading) {
  if (!sampled_ || now - *sampled_ >= kLeastTime) {
    if (functions_.gpm_sample(device_, next_) == nvml::kSuccess) {
      if (sampled_) Measure();
      std::swap(last_, next_);
      sampled_ = now;
    } else {
      values_.fill(std::nullopt);
      sampled_.reset();
    }
  }
  for (size_t i = 0; i < std::size(nvml::kGpmRows); ++i) {
    if (values_[i]) reading->Set(nvml::kGpmRows[i].value, *values_[i]);
  }
}

}  // namespace lockstep::worker::devices
