// Session's reduction plan and reducer.
#include <deque>
#include <string>
#include <string_view>
#include <utility>

#include "common/base/logging.h"
#include "worker/collective/backend_choice.h"
#include "worker/collective/factory/form_communicator.h"
#include "worker/runtime/fingerprint.h"
#include "worker/runtime/gradients.h"
#include "worker/runtime/session_impl.h"
#include "worker/runtime/stepped_reducer.h"

namespace lockstep {
namespace {

DirectiveOp OpOf(v1::RankDirective::Kind kind) {
  switch (kind) {
    case v1::RankDirective::CHECKPOINT:
      return DirectiveOp::kCheckpoint;
    case v1::RankDirective::STOP:
      return DirectiveOp::kStop;
    default:  // Of a newer daemon; lite enums are open.
      return DirectiveOp::kNone;
  }
}

// "shm: each of ..." after "backend shm: ..." says it twice.
std::string_view WithoutName(std::string_view plan, std::string_view backend) {
  if (plan.starts_with(backend) && plan.substr(backend.size(), 2) == ": ") {
    plan.remove_prefix(backend.size() + 2);
  }
  return plan;
}

// Keys of a second forming in one generation: a key is written once.
class SecondTry final : public RendezvousStore {
 public:
  explicit SecondTry(RendezvousStore* store) : store_(store) {}
  Status Put(const std::string& key, std::string_view value) override {
    return store_->Put("anew/" + key, value);
  }
  StatusOr<std::string> Get(const std::string& key,
                            MonoTime deadline) override {
    return store_->Get("anew/" + key, deadline);
  }

 private:
  RendezvousStore* const store_;
};

}  // namespace

Status Session::Impl::Plan() {
  PlannerOptions options;
  options.ranks = world_size_;
  options.operation_timeout = options_.operation_timeout;
  if (link_) {
    options.hosts = link_->welcome().hosts();
    options.text = link_->welcome().reduction_plan();
    options.pinned = link_->welcome().reduction_plan_pinned();
  }
  planner_.emplace(std::move(options));
  reported_plan_.clear();
  return planner_->Check();
}

// Where the communicator refuses the job's plan, which all ranks find alike:
// once more without.
StatusOr<std::unique_ptr<Communicator>> Session::Impl::FormByPlan(
    CommunicatorOptions options) {
  options.reduction_plan = planner_->communicator();
  StatusOr<std::unique_ptr<Communicator>> formed = FormCommunicator(options);
  if (formed.ok() || ReasonOf(formed.status()) != kReasonPlanRefused) {
    return formed;
  }
  LOCKSTEP_RETURN_IF_ERROR(planner_->Refuse(formed.status()));
  SecondTry again(options.rendezvous);
  options.rendezvous = &again;
  options.reduction_plan.clear();
  return FormCommunicator(options);
}

void Session::Impl::ReportChoice(const std::string& buckets) {
  std::string choice = std::exchange(choice_, "");
  if (rank_ != 0 || choice.empty()) return;
  if (communicator() != nullptr) {
    // What was chosen by measurement since it was formed.
    const std::string_view backend = communicator()->backend();
    const std::string plan = communicator()->Plan();
    const std::string_view before = WithoutName(formed_plan_, backend);
    if (plan != formed_plan_ && choice.ends_with(before)) {
      choice.resize(choice.size() - before.size());
      choice += WithoutName(plan, backend);
    }
  }
  if (!buckets.empty()) choice += "; " + buckets;
  LOG_INFO("{}: {}", Label(), choice);
  SendEvent(choice);
}

void Session::Impl::ReportPlan() {
  if (rank_ != 0) return;
  for (const std::string& note : planner_->TakeNotes()) {
    LOG_WARN("{}: {}", Label(), note);
    SendEvent(note);
  }
  if (planner_->text().empty() || planner_->text() == reported_plan_) return;
  reported_plan_ = planner_->text();
  // Apart from events: those are sent once, and this again where it is lost.
  v1::RankReport report;
  report.set_reduction_plan(reported_plan_);
  Send(report);
}

StatusOr<std::unique_ptr<Reducer>> Session::Impl::MakeReducer(
    const std::vector<Parameter>& parameters, const ReducerOptions& options) {
  if (communicator() == nullptr) {
    return FailedPrecondition("a reducer needs a formed session");
  }
  // The last guard of a program that looks for checkpoints by itself.
  if (options.start_step <= 0 && resume_.known_generation > 0 &&
      !resume_.from_start) {
    return WithReason(
        FailedPrecondition(
            "rank {} would begin from the start, and job {} has saved a "
            "checkpoint of step {}",
            rank_, job_, resume_.known_step),
        kReasonNoCheckpoint);
  }
  LOCKSTEP_ASSIGN_OR_RETURN(
      const BucketPlan gradients,
      PlanGradients(parameters, options, world_size_,
                    SizesFor(communicator()->backend(), options.bucket_bytes)));
  LOCKSTEP_RETURN_IF_ERROR(
      planner_->CheckPinned(*communicator(), parameters, options));
  // Whoever reduced other shapes, or at other steps, would hang or be wrong.
  const ConfigMap shape = {
      {"checkpoint interval", std::to_string(checkpoint_interval_)},
      {"clip norm", fmt::format("{}", options.clip_norm)},
      {"gradient memory",
       options.device_stream != nullptr ? "the device's" : "the host's"},
      {"gradient plan", gradients.hash},
      {"learns order", options.learn_order ? "yes" : "no"},
      {"start step", std::to_string(options.start_step)},
      {"state hash interval", std::to_string(options.state_hash_interval)},
  };
  if (link_) {
    LOCKSTEP_RETURN_IF_ERROR(
        Compare(shape, MonotonicNow() + options_.forming_timeout));
  }
  LOCKSTEP_ASSIGN_OR_RETURN(
      ReductionPlanner::Made made,
      planner_->Make(communicator(), &*collectives_, parameters, options));
  // The order of the sums shapes the numbers like the rest.
  const ConfigMap plan = {{"reduction plan", planner_->hash()}};
  if (link_ && world_size_ > 1) {
    LOCKSTEP_RETURN_IF_ERROR(
        Compare(plan, MonotonicNow() + options_.forming_timeout));
  }
  ReportChoice(made.how);
  ReportPlan();

  SteppedReducerOptions stepped;
  stepped.reducer = options;
  stepped.reducer.order = std::move(made.order);
  stepped.reducer.learn_order = made.learn_order;
  stepped.generation = generation_;
  stepped.fingerprint = fingerprint_ ^ Fingerprint(shape) ^ Fingerprint(plan);
  stepped.checkpoint_interval = checkpoint_interval_;
  stepped.operation_timeout = options_.operation_timeout;
  stepped.communicator = communicator();
  stepped.progress = progress_.get();
  stepped.sizes = made.sizes;
  stepped.learned = std::move(made.learned);
  stepped.on_order = [this](const std::vector<uint32_t>& order, int64_t step,
                            const std::string& layout) {
    planner_->Learn(order, step, layout);
    ReportPlan();
  };
  stepped.before_step = [this](StepController* c) { Offer(c); };
  stepped.on_drain = [this] { SendEvent("a rank's host is to be drained"); };
  stepped.on_vote = [this](const CheckpointOrder& order) {
    tried_checkpoint_ = order.step;
  };
  stepped.on_early_stop = [this] { stopped_early_ = true; };
  return MakeSteppedReducer(parameters, std::move(stepped));
}

Status Session::Impl::LastCheckpoint() const {
  if (rank_ != 0 || output_directory_.empty() || stopped_early_ ||
      saved_checkpoint_ >= tried_checkpoint_) {
    return OkStatus();
  }
  return WithReason(
      DataLoss(
          "the checkpoint of step {}, the last one that was ordered, was "
          "not saved: the job's events say why; {}",
          tried_checkpoint_,
          saved_checkpoint_ < 0
              ? std::string("this attempt has saved no other")
              : fmt::format("the newest one is of step {}", saved_checkpoint_)),
      kReasonCheckpointFailed);
}

void Session::Impl::Offer(StepController* controller) {
  controller->SetDrain(drain_.load(std::memory_order_relaxed));
  std::deque<v1::RankDirective> directives;
  {
    MutexLock lock(&mu_);
    directives.swap(directives_);
  }
  for (const v1::RankDirective& directive : directives) {
    controller->Offer(OpOf(directive.kind()), directive.id());
  }
}

}  // namespace lockstep
