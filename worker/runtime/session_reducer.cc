// Session's reduction plan and reducer.
#include <string>
#include <utility>

#include "common/base/logging.h"
#include "worker/collective/factory/backend_choice.h"
#include "worker/collective/factory/form_communicator.h"
#include "worker/runtime/fingerprint.h"
#include "worker/runtime/gradients.h"
#include "worker/runtime/peer_lost.h"
#include "worker/runtime/session_impl.h"
#include "worker/runtime/stepped_reducer.h"

namespace lockstep::worker::runtime {
namespace {

// Keys of a second forming in one generation: a key is written once.
class SecondTry final : public collective::RendezvousStore {
 public:
  explicit SecondTry(collective::RendezvousStore* store) : store_(store) {}
  Status Put(const std::string& key, std::string_view value) override {
    return store_->Put("anew/" + key, value);
  }
  StatusOr<std::string> Get(const std::string& key,
                            MonoTime deadline) override {
    return store_->Get("anew/" + key, deadline);
  }

 private:
  collective::RendezvousStore* const store_;
};

// The sizes of buckets, where no plan says others. An elastic rank may have no
// communicator yet.
collective::BucketSizes SizesOf(const collective::Communicator* communicator,
                                bool elastic, const ReducerOptions& options) {
  return elastic ? ReductionPlanner::ElasticSizes(options)
                 : collective::SizesFor(communicator->backend(),
                                        options.bucket_bytes);
}

}  // namespace

Status Session::Impl::Plan() {
  PlannerOptions options;
  options.ranks = identity_.world_size;
  using Elastic = PlannerOptions::Elastic;
  options.elastic = kept_.elastic_over_nccl ? Elastic::kOverNccl
                    : kept_.elastic         ? Elastic::kByShards
                                            : Elastic::kNo;
  options.operation_timeout = options_.operation_timeout;
  if (link_) {
    options.hosts = link_->welcome().hosts();
    options.pinned = link_->welcome().reduction_plan_pinned();
    // A replacement takes that of its peers; where it is elastic it makes the
    // same one out of the same text.
    if (!identity_.recovering || kept_.elastic) {
      options.text = link_->welcome().reduction_plan();
    }
  }
  planner_.emplace(std::move(options));
  plan_reports_.Forget();
  return planner_->Check();
}

// Where the communicator refuses the job's plan, which all ranks find alike:
// once more without.
StatusOr<std::unique_ptr<collective::Communicator>> Session::Impl::FormByPlan(
    collective::CommunicatorOptions options) {
  options.reduction_plan = planner_->communicator();
  StatusOr<std::unique_ptr<collective::Communicator>> formed =
      FormCommunicator(options, plan_reports_.choice());
  if (formed.ok() ||
      ReasonOf(formed.status()) != collective::kReasonPlanRefused ||
      kept_.recovery > 0) {
    return formed;
  }
  LOCKSTEP_RETURN_IF_ERROR(planner_->Refuse(formed.status()));
  SecondTry again(options.rendezvous);
  options.rendezvous = &again;
  options.reduction_plan.clear();
  return FormCommunicator(options, plan_reports_.choice());
}

void Session::Impl::ReportChoice(const std::string& buckets) {
  if (membership_.place != 0 || communicator() == nullptr) return;
  const std::string choice = plan_reports_.TakeChoice(communicator(), buckets);
  if (choice.empty()) return;
  LOG_INFO("{}: {}", Label(), choice);
  SendEvent(choice);
}

void Session::Impl::ReportPlan() {
  // One that is away has nothing to say yet.
  const bool waits = identity_.recovering && communicator() == nullptr;
  if (membership_.place != 0 || waits) return;
  for (const std::string& note : planner_->TakeNotes()) {
    LOG_WARN("{}: {}", Label(), note);
    SendEvent(note);
  }
  if (!plan_reports_.Changes(planner_->text())) return;
  // Apart from events: those are sent once, and this again where it is lost.
  v1::RankReport report;
  report.set_reduction_plan(planner_->text());
  Send(report);
}

StatusOr<std::unique_ptr<Reducer>> Session::Impl::MakeReducer(
    const std::vector<Parameter>& parameters, const ReducerOptions& options) {
  // One that replaces a rank of an elastic job forms in Recover, so that the
  // others do not wait while it makes its model.
  const bool forms_later =
      kept_.elastic && identity_.recovering && communicator() == nullptr;
  if (communicator() == nullptr && !(forms_later && planner_)) {
    return FailedPrecondition("a reducer needs a formed session");
  }
  // The last guard of a program that looks for checkpoints by itself.
  const SessionResume& resume = identity_.resume;
  if (kept_.has_state && options.start_step <= 0 &&
      resume.known_generation > 0 && !resume.from_start) {
    return WithReason(
        FailedPrecondition(
            "rank {} would begin from the start, and job {} has saved a "
            "checkpoint of step {}",
            identity_.rank, identity_.job, resume.known_step),
        kReasonNoCheckpoint);
  }
  LOCKSTEP_ASSIGN_OR_RETURN(
      const collective::BucketPlan gradients,
      PlanGradients(parameters, options, identity_.world_size,
                    SizesOf(communicator(), kept_.elastic, options)));
  LOCKSTEP_RETURN_IF_ERROR(
      planner_->CheckPinned(communicator(), parameters, options));
  // Whoever reduced other shapes, or at other steps, would hang or be wrong.
  const ConfigMap shape = {
      {"checkpoint interval",
       std::to_string(identity_.checkpoint_interval_steps)},
      {"clip norm", fmt::format("{}", options.clip_norm)},
      {"gradient memory",
       options.device_stream != nullptr ? "the device's" : "the host's"},
      {"gradient plan", gradients.hash},
      {"learns order", options.learn_order ? "yes" : "no"},
      {"start step", std::to_string(options.start_step)},
      {"state hash interval", std::to_string(options.state_hash_interval)},
  };
  LOCKSTEP_RETURN_IF_ERROR(KeepShape(shape, parameters, options));
  // A replacement compares when it is levelled.
  const bool compares = link_ && kept_.has_state;
  if (compares) {
    LOCKSTEP_RETURN_IF_ERROR(
        Compare(shape, MonotonicNow() + options_.forming_timeout));
  }
  LOCKSTEP_ASSIGN_OR_RETURN(
      ReductionPlanner::Made made,
      planner_->Make(communicator(), collectives_ ? &*collectives_ : nullptr,
                     parameters, options));
  // The order of the sums shapes the numbers like the rest.
  const ConfigMap plan = {{"reduction plan", planner_->hash()}};
  if (compares && identity_.world_size > 1) {
    LOCKSTEP_RETURN_IF_ERROR(
        Compare(plan, MonotonicNow() + options_.forming_timeout));
  }
  ReportChoice(made.how);
  ReportPlan();

  const auto make = [&] {
    SteppedReducerOptions stepped;
    stepped.reducer = options;
    stepped.reducer.order = made.order;
    stepped.reducer.learn_order = made.learn_order;
    stepped.generation = identity_.generation;
    stepped.fingerprint = fingerprint_ ^ Fingerprint(shape) ^ Fingerprint(plan);
    stepped.checkpoint_interval = identity_.checkpoint_interval_steps;
    stepped.operation_timeout = options_.operation_timeout;
    stepped.communicator = forms_later ? communicator_.lone() : communicator();
    stepped.membership = membership_;
    stepped.elastic = kept_.elastic;
    stepped.progress = progress_.get();
    stepped.sizes = made.sizes;
    stepped.learned = made.learned;
    stepped.on_order = [this](const std::vector<uint32_t>& order, int64_t step,
                              const std::string& layout) {
      planner_->Learn(order, step, layout);
      ReportPlan();
    };
    stepped.before_step = [this](StepController* c) { orders_.Offer(c); };
    stepped.on_drain = [this] { SendEvent("a rank's host is to be drained"); };
    stepped.on_vote = [this](const CheckpointOrder& order) {
      checkpoints_.Tried(order.step);
    };
    stepped.on_early_stop = [this] { checkpoints_.StoppedEarly(); };
    return MakeSteppedReducer(parameters, std::move(stepped));
  };
  while (true) {
    auto reducer = make();
    if (reducer.ok()) {
      // It trains in the communicator of Recover, not alone.
      if (forms_later) LOCKSTEP_RETURN_IF_ERROR((*reducer)->Unbind());
      kept_.reducer = reducer->get();
      return std::unique_ptr<Reducer>(*std::move(reducer));
    }
    LOCKSTEP_RETURN_IF_ERROR(FormRecovering(MarkPeerLost(reducer.status())));
  }
}

// What a replacement has too: it knows no start step, and no order that a
// checkpoint had.
Status Session::Impl::KeepShape(const ConfigMap& shape,
                                const std::vector<Parameter>& parameters,
                                ReducerOptions options) {
  options.order.clear();
  LOCKSTEP_ASSIGN_OR_RETURN(
      const collective::BucketPlan gradients,
      PlanGradients(parameters, options, identity_.world_size,
                    SizesOf(communicator(), kept_.elastic, options)));
  kept_.shape = shape;
  kept_.shape["gradient plan"] = gradients.hash;
  kept_.shape.erase("start step");
  return OkStatus();
}

Status Session::Impl::LastCheckpoint() const {
  const bool counts =
      membership_.place == 0 && !identity_.output_directory.empty();
  return counts ? checkpoints_.Check() : OkStatus();
}

}  // namespace lockstep::worker::runtime
