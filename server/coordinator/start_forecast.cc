#include "server/coordinator/start_forecast.h"

#include <algorithm>
#include <utility>

namespace lockstep::server {
namespace {

constexpr Duration kGoodFor = std::chrono::seconds(10);

// What the job's progress and its limit say. nullopt: nothing is known.
std::optional<WallTime> EndOf(const JobEntry& entry, WallTime now) {
  const Job& job = *entry.job;
  std::optional<WallTime> end;
  if (const auto& eta = entry.meter.Info().eta) end = now + *eta;
  if (job.start_time && job.spec.max_running_time) {
    const WallTime limit = *job.start_time + *job.spec.max_running_time;
    end = end ? std::min(*end, limit) : limit;
  }
  return end;
}

}  // namespace

StartForecast::Input StartForecast::Gather(Time now) const {
  Input input;
  const JobRegistry& jobs = parts_.state->jobs;
  for (const QueuePlace& place : jobs.queued()) {
    if (input.queue.size() == kMaxForecast) break;
    const JobEntry& entry = jobs.At(place.job);
    if (entry.job->cancel_requested) continue;
    input.jobs.push_back(entry.job);
    input.queue.push_back({entry.job.get(), now.wall - entry.job->state_time,
                           parts_.scheduler->BacksOff(entry, now)});
  }
  if (input.queue.empty()) return input;
  input.hosts = parts_.scheduler->Hosts();
  for (const JobName& name : jobs.live()) {
    const JobEntry& entry = jobs.At(name);
    if (entry.job->holds.empty()) continue;
    if (const auto end = EndOf(entry, now.wall)) {
      input.ends.push_back({*end, entry.job->holds});
    }
  }
  return input;
}

std::shared_ptr<const StartForecast::Starts> StartForecast::Get(
    Time now) const {
  MutexLock made_lock(&made_mu_);
  if (made_ != nullptr && now.mono - made_at_ < kGoodFor) return made_;
  Input input;
  SchedulerOptions options;
  {
    MutexLock lock(&mu_);
    input = Gather(now);
    options = parts_.options->scheduler;
  }
  made_ = std::make_shared<const Starts>(
      ExpectStarts(std::move(input.queue), std::move(input.hosts),
                   std::move(input.ends), options, now.wall));
  made_at_ = now.mono;
  return made_;
}

}  // namespace lockstep::server
