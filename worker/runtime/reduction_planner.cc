#include "worker/runtime/reduction_planner.h"

#include <algorithm>

#include "worker/collective/handshake.h"
#include "worker/runtime/peer_lost.h"

namespace lockstep::worker::runtime {
namespace {

std::string WireOf(const ReducerOptions& reducer) {
  return reducer.bf16_wire ? "bf16" : "fp32";
}

collective::BucketSizes SizesOf(const ReductionPlan& plan) {
  return {plan.bucket_bytes, plan.first_bucket_bytes, plan.last_bucket_bytes};
}

// "4 MiB", "2 KiB", "100 bytes".
std::string FormatSize(uint64_t bytes) {
  if (bytes % (1 << 20) == 0) return fmt::format("{} MiB", bytes >> 20);
  if (bytes % (1 << 10) == 0) return fmt::format("{} KiB", bytes >> 10);
  return fmt::format("{} bytes", bytes);
}

}  // namespace

// The end of a plan that is pinned is the end of the job.
Status ReductionPlanner::DoesNotFit(const std::string& why) {
  if (options_.pinned || followed_) {
    return WithReason(
        FailedPrecondition("the {} reduction plan does not fit: {}",
                           followed_ ? "other ranks'" : "job's pinned", why),
        collective::kReasonConfigMismatch);
  }
  notes_.push_back(fmt::format(
      "the reduction plan of the generations before is dropped, and one is "
      "made anew: {}; from here on sums may differ in their last bits",
      why));
  plan_.reset();
  text_.clear();
  return OkStatus();
}

Status ReductionPlanner::Check() {
  plan_.reset();
  text_.clear();
  if (options_.text.empty()) return OkStatus();
  StatusOr<ReductionPlan> plan = ParseReductionPlan(options_.text);
  if (!plan.ok()) return DoesNotFit(std::string(Message(plan.status())));
  if (plan->ranks != options_.ranks ||
      (options_.hosts > 0 && !elastic() && plan->hosts != options_.hosts)) {
    return DoesNotFit(fmt::format(
        "it is of {} ranks on {} hosts, and these are {}{}", plan->ranks,
        plan->hosts, options_.ranks,
        options_.hosts > 0 ? fmt::format(" on {}", options_.hosts) : ""));
  }
  plan_ = *std::move(plan);
  return OkStatus();
}

Status ReductionPlanner::Refuse(const Status& why) {
  return DoesNotFit(std::string(Message(why)));
}

StatusOr<std::string> ReductionPlanner::LayoutOf(
    const std::vector<Parameter>& parameters,
    const ReducerOptions& reducer) const {
  ReducerOptions options = reducer;
  options.order = plan_->order;
  LOCKSTEP_ASSIGN_OR_RETURN(
      const collective::BucketPlan plan,
      PlanGradients(parameters, options, options_.ranks, SizesOf(*plan_)));
  return plan.hash;
}

Status ReductionPlanner::Follow(const std::string& text) {
  followed_ = true;
  StatusOr<ReductionPlan> plan = ParseReductionPlan(text);
  if (!plan.ok()) return DoesNotFit(std::string(Message(plan.status())));
  if (plan->ranks != options_.ranks) {
    return DoesNotFit(fmt::format("it is of {} ranks, and these are {}",
                                  plan->ranks, options_.ranks));
  }
  plan_ = *std::move(plan);
  text_ = text;
  return OkStatus();
}

std::string ReductionPlanner::Shape() const {
  if (!plan_) return "none";
  return fmt::format("{} of {} ranks as {} in buckets of {}, {} and {} bytes",
                     plan_->communicator, plan_->ranks, plan_->wire,
                     plan_->bucket_bytes, plan_->first_bucket_bytes,
                     plan_->last_bucket_bytes);
}

std::string ReductionPlanner::PlanOf(
    const collective::Communicator* communicator) const {
  if (elastic()) {
    const bool over_nccl =
        options_.elastic == PlannerOptions::Elastic::kOverNccl;
    return fmt::format("{}shards={}", over_nccl ? "nccl " : "", options_.ranks);
  }
  return communicator->ReductionPlan();
}

// Whether the plan is one of these gradients.
Status ReductionPlanner::CheckFit(const collective::Communicator* communicator,
                                  const std::vector<Parameter>& parameters,
                                  const ReducerOptions& reducer) {
  // A backend without a choice takes any plan, and follows none.
  if (const std::string own = PlanOf(communicator);
      plan_->communicator != own) {
    return DoesNotFit(
        fmt::format("it is for '{}', and these ranks reduce by '{}'",
                    plan_->communicator, own));
  }
  if (plan_->wire != WireOf(reducer)) {
    return DoesNotFit(fmt::format("it has gradients as {} on the wire, not {}",
                                  plan_->wire, WireOf(reducer)));
  }
  if (reducer.bucket_bytes > 0 && plan_->bucket_bytes != reducer.bucket_bytes) {
    return DoesNotFit(fmt::format("its buckets are of {}, and {} are asked for",
                                  FormatSize(plan_->bucket_bytes),
                                  FormatSize(reducer.bucket_bytes)));
  }
  if (plan_->parameters != parameters.size()) {
    return DoesNotFit(fmt::format("it is of {} gradients, and there are {}",
                                  plan_->parameters, parameters.size()));
  }
  LOCKSTEP_ASSIGN_OR_RETURN(const std::string layout,
                            LayoutOf(parameters, reducer));
  if (plan_->layout == layout) return OkStatus();
  return DoesNotFit(
      fmt::format("these gradients lie otherwise in buckets of its sizes and "
                  "order (layout {}, not {}): another model, or another "
                  "version of the program",
                  layout, plan_->layout));
}

Status ReductionPlanner::CheckPinned(
    const collective::Communicator* communicator,
    const std::vector<Parameter>& parameters, const ReducerOptions& reducer) {
  if (!options_.pinned || !plan_) return OkStatus();
  return CheckFit(communicator, parameters, reducer);
}

// Says how.
StatusOr<std::string> ReductionPlanner::MakeNew(
    collective::Communicator* communicator, SmallCollectives* small,
    const ReducerOptions& reducer) {
  if (elastic()) {
    SetPlan(ElasticSizes(reducer), reducer, PlanOf(communicator));
    return fmt::format(
        "sums over {} shards{}, in buckets of {}", options_.ranks,
        options_.elastic == PlannerOptions::Elastic::kByShards
            ? " in order"
            : ", in an order that depends on the ranks that are there",
        FormatSize(plan_->bucket_bytes));
  }
  LOCKSTEP_RETURN_IF_ERROR(MarkPeerLost(communicator->Tune(
      options_.tune_budget, MonotonicNow() + options_.operation_timeout)));
  size_t bytes = reducer.bucket_bytes;
  std::string why = ", as the program asks";
  if (bytes == 0) {
    LOCKSTEP_ASSIGN_OR_RETURN(
        const MessageCost cost,
        MeasureMessages(communicator, small, options_.measure_budget,
                        options_.operation_timeout));
    bytes = BucketBytesFor(cost);
    why = ": " + Describe(cost);
  }
  const collective::BucketSizes sizes =
      collective::SizesFor(communicator->backend(), bytes);
  SetPlan(sizes, reducer, PlanOf(communicator));
  return fmt::format("buckets of {}{}", FormatSize(bytes), why);
}

void ReductionPlanner::SetPlan(const collective::BucketSizes& sizes,
                               const ReducerOptions& reducer,
                               const std::string& how) {
  plan_.emplace();
  plan_->ranks = options_.ranks;
  plan_->hosts = std::max(1, options_.hosts);
  plan_->wire = WireOf(reducer);
  plan_->communicator = how;
  plan_->bucket_bytes = sizes.bucket;
  plan_->first_bucket_bytes = sizes.first;
  plan_->last_bucket_bytes = sizes.last;
}

StatusOr<ReductionPlanner::Made> ReductionPlanner::Make(
    collective::Communicator* communicator, SmallCollectives* small,
    const std::vector<Parameter>& parameters, const ReducerOptions& reducer) {
  Made made;
  made.order = reducer.order;
  made.learn_order = reducer.learn_order;
  if (options_.ranks == 1) {
    made.sizes =
        collective::SizesFor(communicator->backend(), reducer.bucket_bytes);
    return made;
  }
  if (plan_) {
    LOCKSTEP_RETURN_IF_ERROR(CheckFit(communicator, parameters, reducer));
  }
  if (plan_) {
    made.how = fmt::format("buckets of {}, by the job's reduction plan {}",
                           FormatSize(plan_->bucket_bytes), hash());
  } else {
    LOCKSTEP_ASSIGN_OR_RETURN(made.how, MakeNew(communicator, small, reducer));
  }
  plan_->parameters = static_cast<uint32_t>(parameters.size());
  if (plan_->order.empty() && !options_.pinned && !reducer.order.empty() &&
      !elastic()) {
    // By a generation whose plan is not known any more: hardly later.
    plan_->order = reducer.order;
    plan_->learned_at = std::min(reducer.start_step, OrderLearner::kFrom);
  }
  LOCKSTEP_ASSIGN_OR_RETURN(plan_->layout, LayoutOf(parameters, reducer));
  made.sizes = SizesOf(*plan_);
  made.learned = {plan_->order, plan_->learned_at};
  if (options_.pinned) {
    made.order.clear();
    made.learn_order = false;
  }
  Write();
  return made;
}

void ReductionPlanner::Learn(const std::vector<uint32_t>& order, int64_t at,
                             const std::string& layout) {
  if (!plan_) return;
  plan_->order = order;
  plan_->learned_at = at;
  plan_->layout = layout;
  Write();
}

void ReductionPlanner::Write() {
  StatusOr<std::string> text = Format(*plan_);
  text_.clear();
  if (text.ok()) {
    text_ = *std::move(text);
  } else {
    notes_.push_back(fmt::format("{}: a later generation makes its own",
                                 Message(text.status())));
  }
}

}  // namespace lockstep::worker::runtime
