#include "worker/devices/gpu_sampler.h"

#include <algorithm>
#include <optional>
#include <thread>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "common/base/logging.h"
#include "common/base/mutex.h"

namespace lockstep::worker::devices {
namespace {

// How long an end of the program may have to wait for the thread of events.
constexpr unsigned kEventWaitMs = 200;
constexpr Duration kEventRetry = std::chrono::seconds(5);

// The rates that are read for one GPU at a time stay until its next turn.
void KeepSlowValues(const GpuReading& last, GpuReading* reading) {
  for (const GpuValue value : {GpuValue::kPcieTransmit, GpuValue::kPcieReceive,
                               GpuValue::kNvlinksActive}) {
    if (last.Get(value) && reading->up) reading->Set(value, *last.Get(value));
  }
}

void LogChange(const Gpu& gpu, const GpuReading* last,
               const GpuReading& reading) {
  const bool was_up = last == nullptr || last->up;
  if (was_up && !reading.up) {
    LOG_ERROR("GPU {} ({}) stopped answering: {}", gpu.index, gpu.uuid,
              reading.error);
  } else if (!was_up && reading.up) {
    LOG_INFO("GPU {} ({}) answers again", gpu.index, gpu.uuid);
  }
}

}  // namespace

struct GpuSampler::State {
  explicit State(GpuSamplerOptions o)
      : options(std::move(o)), started(MonotonicNow()) {
    read.ended = started;
  }

  const GpuSamplerOptions options;
  const MonoTime started;

  Mutex mu;
  CondVar changed;
  bool stop ABSL_GUARDED_BY(mu) = false;
  int threads ABSL_GUARDED_BY(mu) = 0;
  // Set once, by the thread that opens.
  std::optional<Status> opened ABSL_GUARDED_BY(mu);
  // Constant from `opened` on.
  std::vector<Gpu> gpus;
  std::vector<GpuPlace> places;
  std::string driver_version;

  // The newest readings, and when they began and ended; and how many there
  // were, and the time that they took.
  struct Read {
    std::vector<GpuReading> readings;
    MonoTime begun;
    MonoTime ended;
    uint64_t samples = 0;
    double seconds = 0;
  };
  Read read ABSL_GUARDED_BY(mu);
  // Asks for a reading before the period ends.
  bool soon ABSL_GUARDED_BY(mu) = false;
  std::vector<GpuXids> xids ABSL_GUARDED_BY(mu);

  bool Stopped() {
    MutexLock lock(&mu);
    return stop;
  }
  // False when it was stopped meanwhile.
  bool SleepUntil(MonoTime time) {
    MutexLock lock(&mu);
    while (!stop && MonotonicNow() < time) changed.WaitUntil(&mu, time);
    return !stop;
  }
  // The same, or until ReadSoon.
  bool SleepUntilAsked(MonoTime time) {
    MutexLock lock(&mu);
    while (!stop && !soon && MonotonicNow() < time) {
      changed.WaitUntil(&mu, time);
    }
    soon = false;
    return !stop;
  }
  void ThreadEnds() {
    MutexLock lock(&mu);
    --threads;
    changed.NotifyAll();
  }

  std::vector<GpuReading> ReadAll(const Nvml& nvml,
                                  const std::vector<GpuReading>& last,
                                  size_t turn, MonoTime since);
  void Sample(const Nvml& nvml);
  void WatchXids(Nvml* nvml);
};

std::vector<GpuReading> GpuSampler::State::ReadAll(
    const Nvml& nvml, const std::vector<GpuReading>& last, size_t turn,
    MonoTime since) {
  std::vector<GpuReading> out;
  for (size_t i = 0; i < gpus.size() && !Stopped(); ++i) {
    const GpuReading* before = last.empty() ? nullptr : &last[i];
    const bool slow = before == nullptr || turn % gpus.size() == i;
    GpuReading reading = nvml.Read(i, slow);
    LogChange(gpus[i], before, reading);
    if (before != nullptr) {
      if (!slow) KeepSlowValues(*before, &reading);
      reading.throttled_seconds = before->throttled_seconds;
      // What held between two readings is not known when they lie far apart.
      const Duration step =
          std::min(MonotonicNow() - since, options.period * 5);
      for (size_t t = 0; reading.throttled && t < kGpuThrottles; ++t) {
        if ((*reading.throttled)[t]) {
          reading.throttled_seconds[t] += ToSeconds(step);
        }
      }
    }
    out.push_back(std::move(reading));
  }
  return out;
}

void GpuSampler::State::Sample(const Nvml& nvml) {
  std::vector<GpuReading> last;
  MonoTime since = MonotonicNow();
  for (size_t turn = 0;; ++turn) {
    const MonoTime begin = MonotonicNow();
    std::vector<GpuReading> next = ReadAll(nvml, last, turn, since);
    if (next.size() != gpus.size()) return;  // Stopped meanwhile.
    since = begin;
    last = next;
    {
      MutexLock lock(&mu);
      read.readings = std::move(next);
      read.begun = begin;
      read.ended = MonotonicNow();
      ++read.samples;
      read.seconds += ToSeconds(read.ended - begin);
    }
    // From now on when it took longer: never in a hurry.
    if (!SleepUntilAsked(std::max(begin + options.period, MonotonicNow()))) {
      return;
    }
  }
}

void GpuSampler::State::WatchXids(Nvml* nvml) {
  if (const Status events = nvml->OpenEvents(); !events.ok()) {
    LOG_INFO("Xid errors of GPUs are not counted: {}", Message(events));
    return;
  }
  {
    MutexLock lock(&mu);
    xids.resize(gpus.size());
  }
  std::string complaint;
  while (!Stopped()) {
    const auto xid = nvml->WaitForXid(kEventWaitMs);
    if (!xid.ok()) {
      if (Message(xid.status()) != complaint) {
        complaint = Message(xid.status());
        LOG_WARN("{}", complaint);
      }
      if (!SleepUntil(MonotonicNow() + kEventRetry)) return;
      continue;
    }
    if (!xid->has_value()) continue;
    const Nvml::Xid& event = **xid;
    LOG_ERROR("GPU {} ({}): Xid {}", gpus[event.gpu].index,
              gpus[event.gpu].uuid, event.number);
    MutexLock lock(&mu);
    xids[event.gpu].Add(event.number);
  }
}

StatusOr<std::unique_ptr<GpuSampler>> GpuSampler::Open(
    GpuSamplerOptions options) {
  options.period =
      std::max<Duration>(options.period, std::chrono::milliseconds(10));
  auto state = std::make_shared<State>(std::move(options));
  {
    MutexLock lock(&state->mu);
    state->threads = 1;
  }
  // Detached: a thread that hangs in the driver can be neither joined nor
  // ended. The destructor waits for `threads`.
  std::thread([state] {
    auto opened = Nvml::Open(state->options.library);
    std::shared_ptr<Nvml> nvml;
    bool sample = false;
    {
      MutexLock lock(&state->mu);
      if (opened.ok()) {
        nvml = *std::move(opened);
        state->gpus = nvml->gpus();
        state->places = nvml->places();
        state->driver_version = nvml->driver_version();
        sample = !state->gpus.empty() && !state->stop;
        if (sample) ++state->threads;
      }
      state->opened = opened.ok() ? OkStatus() : opened.status();
      state->changed.NotifyAll();
    }
    if (sample) {
      std::thread([state, nvml]() mutable {
        state->WatchXids(nvml.get());
        nvml.reset();
        state->ThreadEnds();
      }).detach();
      state->Sample(*nvml);
    }
    nvml.reset();  // Which speaks to the driver too, and may hang.
    state->ThreadEnds();
  }).detach();

  std::unique_ptr<GpuSampler> sampler(new GpuSampler(state));
  const MonoTime deadline = MonotonicNow() + state->options.open_within;
  MutexLock lock(&state->mu);
  while (!state->opened && MonotonicNow() < deadline) {
    state->changed.WaitUntil(&state->mu, deadline);
  }
  if (!state->opened) {
    state->stop = true;
    return DeadlineExceeded("the NVIDIA driver did not initialize within {}",
                            FormatDuration(state->options.open_within));
  }
  LOCKSTEP_RETURN_IF_ERROR(*state->opened);
  return sampler;
}

GpuSampler::GpuSampler(std::shared_ptr<State> state)
    : state_(std::move(state)) {}

GpuSampler::~GpuSampler() {
  const MonoTime deadline = MonotonicNow() + state_->options.close_within;
  MutexLock lock(&state_->mu);
  state_->stop = true;
  state_->changed.NotifyAll();
  while (state_->threads > 0 && MonotonicNow() < deadline) {
    state_->changed.WaitUntil(&state_->mu, deadline);
  }
  if (state_->threads > 0) {
    LOG_WARN("the NVIDIA driver hangs: abandoning its threads");
  }
}

const std::vector<Gpu>& GpuSampler::gpus() const { return state_->gpus; }
const std::vector<GpuPlace>& GpuSampler::places() const {
  return state_->places;
}
const std::string& GpuSampler::driver_version() const {
  return state_->driver_version;
}

GpuStatus GpuSampler::Latest(MonoTime now) const {
  GpuStatus status;
  MutexLock lock(&state_->mu);
  status.age = std::max(Duration{}, now - state_->read.ended);
  status.begun = state_->read.begun;
  status.samples = state_->read.samples;
  status.read_seconds = state_->read.seconds;
  status.xids = state_->xids;
  if (status.age <=
      std::max(state_->options.stale_after, state_->options.period * 5)) {
    status.readings = state_->read.readings;
  }
  return status;
}

void GpuSampler::ReadSoon() const {
  MutexLock lock(&state_->mu);
  state_->soon = true;
  state_->changed.NotifyAll();
}

std::unique_ptr<GpuSampler> OpenGpusIfThere(const GpuSamplerOptions& options) {
  auto sampler = GpuSampler::Open(options);
  if (sampler.ok()) return *std::move(sampler);
  if (sampler.status().code() == StatusCode::kNotFound) {
    LOG_DEBUG("{}", Message(sampler.status()));
  } else {
    LOG_WARN("offering no GPUs: {}", Message(sampler.status()));
  }
  return nullptr;
}

}  // namespace lockstep::worker::devices
