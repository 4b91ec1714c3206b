#include "server/coordinator/coordinator.h"

#include <algorithm>
#include <map>
#include <memory>
#include <utility>

#include "common/base/logging.h"
#include "server/core/lifecycle.h"
#include "server/core/lineage.h"
#include "server/core/verdict.h"

namespace lockstep::server {

CoordinatorCore::CoordinatorCore(const CoordinatorOptions* options,
                                 const StoreIdentity* identity, Store* store,
                                 const Clock* clock, WatchHub* hub)
    : state(options->stall, options->membership),
      billing(options->prices, &state.members),
      writer(store, clock, options->observer, options->limits.answers),
      rendezvous(options->limits.rendezvous),
      prober(options->inquiry.probe_timeout, &state),
      guard(identity, &writer, &state),
      detector(options, &state, &prober),
      faults(options, &state, &prober),
      scheduler({.options = options,
                 .clock = clock,
                 .state = &state,
                 .faults = &faults,
                 .guard = &guard}),
      committer({.options = options,
                 .writer = &writer,
                 .state = &state,
                 .billing = &billing,
                 .rendezvous = &rendezvous,
                 .faults = &faults,
                 .hub = hub}),
      checks(&state, &committer),
      prefetch({.options = &options->prefetch,
                .identity = identity,
                .state = &state,
                .scheduler = &scheduler}),
      snapshots({.state = &state,
                 .billing = &billing,
                 .faults = &faults,
                 .guard = &guard,
                 .detector = &detector}),
      reconciler({.options = options,
                  .identity = identity,
                  .writer = &writer,
                  .state = &state,
                  .guard = &guard,
                  .detector = &detector,
                  .faults = &faults,
                  .scheduler = &scheduler,
                  .prefetch = &prefetch,
                  .committer = &committer,
                  .billing = &billing}),
      admission({.state = &state,
                 .guard = &guard,
                 .detector = &detector,
                 .committer = &committer,
                 .reconciler = &reconciler}),
      retention(&options->retention, &writer, &state, &committer) {}

Coordinator::Coordinator(CoordinatorOptions options, Store* store,
                         const Clock* clock, WatchHub* hub)
    : options_(std::move(options)),
      clock_(clock),
      hub_(hub),
      core_(&options_, &identity_, store, &clock_, hub),
      jobs_(&mu_, {.options = &options_,
                   .clock = &clock_,
                   .identity = &identity_,
                   .state = &core_.state,
                   .writer = &core_.writer,
                   .billing = &core_.billing,
                   .guard = &core_.guard,
                   .scheduler = &core_.scheduler,
                   .committer = &core_.committer,
                   .reconciler = &core_.reconciler}),
      nodes_(&mu_, {.clock = &clock_,
                    .state = &core_.state,
                    .writer = &core_.writer,
                    .snapshots = &core_.snapshots,
                    .guard = &core_.guard,
                    .detector = &core_.detector,
                    .faults = &core_.faults,
                    .committer = &core_.committer,
                    .checks = &core_.checks,
                    .reconciler = &core_.reconciler,
                    .admission = &core_.admission}),
      sessions_(&mu_, &identity_,
                {.clock = &clock_,
                 .observer = options_.observer,
                 .writer = &core_.writer,
                 .state = &core_.state,
                 .guard = &core_.guard,
                 .detector = &core_.detector,
                 .faults = &core_.faults,
                 .rendezvous = &core_.rendezvous,
                 .prefetch = &core_.prefetch,
                 .checks = &core_.checks,
                 .reconciler = &core_.reconciler,
                 .admission = &core_.admission}),
      forecast_(&mu_, {.options = &options_,
                       .state = &core_.state,
                       .scheduler = &core_.scheduler}),
      queries_(&mu_, &clock_, &forecast_,
               {.identity = &identity_,
                .state = &core_.state,
                .writer = &core_.writer,
                .billing = &core_.billing,
                .guard = &core_.guard,
                .snapshots = &core_.snapshots}) {}

Status Coordinator::Load() {
  MutexLock lock(&mu_);
  LOCKSTEP_ASSIGN_OR_RETURN(StoreSnapshot snapshot, core_.writer.Load());
  const Time now = clock_.Now();
  identity_.epoch = snapshot.epoch;
  identity_.history = snapshot.history;
  for (const StorePoint& replaced : snapshot.replaced_histories) {
    identity_.replaced_histories.push_back(replaced.history);
  }
  identity_.epoch_starts = snapshot.epoch_starts;
  identity_.generation_floor = snapshot.generation_floor;
  Restore(snapshot, now);
  hub_->Start(core_.writer.version());
  NoteRestart(now);
  const ClusterState& state = core_.state;
  LOG_INFO("store: {} jobs ({} live), {} nodes, version {}, epoch {}",
           state.jobs.entries().size(), state.jobs.live().size(),
           state.members.members().size(), core_.writer.version(),
           identity_.epoch);
  return OkStatus();
}

void Coordinator::Restore(const StoreSnapshot& snapshot, Time now) {
  ClusterState& state = core_.state;
  for (const JobName& name : snapshot.deleted_jobs) state.jobs.AddDeleted(name);
  for (const NodeRecord& node : snapshot.nodes) {
    state.members.Restore(node, now);
    state.nodes.At(node.info.name);
  }
  for (const auto& loaded : snapshot.jobs) {
    Job job = *loaded;
    // Stored before it was kept short.
    CompactLineage(&job.lineage);
    // A replaced history may have used the next numbers.
    if (!IsFinal(job.state)) {
      job.generation_floor = identity_.generation_floor;
    }
    // The machine's date may have been set back since.
    if (job.not_before) {
      job.not_before = std::min(*job.not_before, now.wall + kLongestBackoff);
    }
    // The store has the same one.
    const auto stored =
        job == *loaded ? loaded : std::make_shared<const Job>(std::move(job));
    const Duration in_state =
        std::max(Duration{}, now.wall - stored->state_time);
    core_.committer.Apply(stored, now);
    // Limits of a state count from when it began; those that guard an
    // exchange with nodes begin anew, as the nodes have to come back first.
    state.jobs.At(stored->spec.name).state_since =
        stored->state == JobState::kFinishing ? now.mono - in_state : now.mono;
  }
  for (const auto& [node, entry] : state.nodes.entries()) {
    state.members.NoteTasks(node, !entry.jobs.empty());
  }
}

void Coordinator::NoteRestart(Time now) {
  std::map<JobName, Job> changed;
  for (const JobName& name : core_.state.jobs.live()) {
    Job job = *core_.state.jobs.At(name).job;
    if (!IsActive(job.state)) continue;
    AddEvent(&job, Reason::kCoordinatorRestarted,
             "the coordinator was started again; its ranks went on meanwhile",
             now);
    changed.emplace(name, std::move(job));
  }
  if (changed.empty()) return;
  // Worth a word, not worth a refusal to start.
  if (Status s =
          core_.committer.CommitJobs(std::move(changed), std::nullopt, now);
      !s.ok()) {
    LOG_WARN("the restart is not in the jobs' history: {}", Message(s));
  }
}

void Coordinator::SetPrices(Prices prices) {
  MutexLock lock(&mu_);
  core_.billing.SetPrices(std::move(prices));
}

}  // namespace lockstep::server
