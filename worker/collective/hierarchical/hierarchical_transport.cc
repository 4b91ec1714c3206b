#include "worker/collective/hierarchical/hierarchical_transport.h"

#include <cstdint>
#include <utility>

#include "worker/collective/hierarchical/chunk_pipeline.h"
#include "worker/collective/hierarchical/host_agreement.h"
#include "worker/collective/hierarchical/host_exchange.h"
#include "worker/collective/hierarchical/leader_exchange.h"
#include "worker/collective/hierarchical/plan_line.h"
#include "worker/collective/hierarchical/stage_plan.h"
#include "worker/collective/tcp/plan.h"

namespace lockstep::worker::collective::hierarchical {
namespace {

// `line` is tcp's, unless a test puts something else there.
std::string DescribeBetween(const std::string& line, int hosts) {
  const auto plan = tcp::ParsePlan(line, hosts);
  return plan.ok() ? tcp::DescribePlan(*plan, hosts) : line;
}

// Whether the ranks between the hosts have an all-to-all. All ranks have the
// line, also those that do not take part there.
bool HasAllToAllBetween(const std::string& line, int hosts) {
  if (hosts == 1) return true;
  const auto plan = tcp::ParsePlan(line, hosts);
  return plan.ok() && hosts <= plan->mesh_ranks;
}

class HierarchicalTransport final : public Transport {
 public:
  explicit HierarchicalTransport(TransportParts parts)
      : has_all_to_all_(
            HasAllToAllBetween(parts.between_line, parts.layout.hosts())),
        plan_given_(parts.plan_given),
        between_line_(std::move(parts.between_line)),
        layout_(std::move(parts.layout)),
        scratch_memory_(std::move(parts.own.memory)),
        sides_(layout_.size(), std::move(parts.within),
               std::move(parts.between), std::move(parts.linked_abort)),
        agreement_(&sides_, parts.own.agreement, layout_.leader(parts.rank)),
        pipeline_(&layout_, parts.rank, &sides_, &agreement_,
                  std::move(parts.own.scratch)),
        exchange_(&layout_, parts.rank, &sides_),
        leader_exchange_(&layout_, parts.rank, &sides_) {}

  std::string_view name() const override { return "hierarchical"; }
  TransportMemory* memory() override { return sides_.memory(); }
  bool AnyThreadMayExecute() const override { return true; }
  Status Check(const Operation&) const override { return OkStatus(); }
  bool HasAllToAll() const override { return has_all_to_all_; }

  std::string Plan() const override {
    if (between_line_.empty()) return DescribeStages(layout_);
    return DescribeStages(layout_) + "; between the hosts " +
           DescribeBetween(between_line_, layout_.hosts());
  }

  std::string ReductionPlan() const override {
    return HierarchicalPlanLine(layout_.host, between_line_);
  }

  // The ranks of each place measure at the same time, for they share the lines.
  // Then all follow the first place's plan, which is rank 0's.
  Status Tune(Duration budget, MonoTime deadline) override {
    if (plan_given_ || layout_.hosts() == 1) return OkStatus();
    std::string line;
    if (sides_.has_between()) {
      LOCKSTEP_RETURN_IF_ERROR(sides_.TuneBetween(budget, deadline));
      line = sides_.BetweenPlan();
    }
    LOCKSTEP_ASSIGN_OR_RETURN(line, agreement_.OfLeader(line, deadline));
    return FollowBetween(line, deadline);
  }

  Status FollowPlan(const std::string& plan, MonoTime deadline) override {
    LOCKSTEP_ASSIGN_OR_RETURN(const std::string line,
                              BetweenPlanOf(plan, layout_.host));
    if (layout_.hosts() > 1) {
      LOCKSTEP_RETURN_IF_ERROR(tcp::ParsePlan(line, layout_.hosts()).status());
      LOCKSTEP_RETURN_IF_ERROR(FollowBetween(line, deadline));
    }
    plan_given_ = true;
    return OkStatus();
  }

  void Cut() override { sides_.Cut(); }
  std::optional<PeerWait> CurrentWait() const override {
    return sides_.CurrentWait();
  }
  void SetQueue(OperationQueue* queue) override { pipeline_.SetQueue(queue); }

  Status Execute(const Operation& operation, MonoTime deadline) override {
    Status status = operation.kind == CollectiveKind::kAllToAll
                        ? AllToAll(operation, deadline)
                        : pipeline_.Run(operation, deadline);
    sides_.Rest();
    return status;
  }

 private:
  Status AllToAll(const Operation& operation, MonoTime deadline) {
    return HostExchange::Fits(layout_)
               ? exchange_.Run(operation, deadline)
               : leader_exchange_.Run(operation, deadline);
  }

  // `line` is the same on all ranks.
  Status FollowBetween(const std::string& line, MonoTime deadline) {
    if (sides_.has_between() && sides_.BetweenPlan() != line) {
      LOCKSTEP_RETURN_IF_ERROR(sides_.FollowBetween(line, deadline));
    }
    sides_.Rest();
    between_line_ = line;
    return OkStatus();
  }

  const bool has_all_to_all_;
  bool plan_given_;
  // The plan of the ranks that meet between the hosts, rank 0 among them.
  std::string between_line_;
  const HostLayout layout_;
  const std::unique_ptr<char[]> scratch_memory_;
  Sides sides_;
  HostAgreement agreement_;
  ChunkPipeline pipeline_;
  HostExchange exchange_;
  LeaderExchange leader_exchange_;
};

}  // namespace

StatusOr<OwnMemory> AllocateOwn(const HostLayout& layout, const Side& within,
                                const Side& between) {
  OwnMemory own;
  if (within.communicator == nullptr) return own;
  LOCKSTEP_ASSIGN_OR_RETURN(own.agreement,
                            within.communicator->Allocate(kLineBytes));
  if (between.communicator == nullptr) return own;
  constexpr size_t kAlignment = 64;
  const size_t bytes = (MostPackedBytes(layout.hosts()) + kAlignment - 1) /
                       kAlignment * kAlignment;
  // Untouched until it is needed.
  own.memory.reset(new char[(kAhead + 1) * bytes + kAlignment]);
  const auto address = reinterpret_cast<uintptr_t>(own.memory.get());
  char* const begin =
      own.memory.get() + (kAlignment - address % kAlignment) % kAlignment;
  for (size_t i = 0; i <= kAhead; ++i) {
    LOCKSTEP_ASSIGN_OR_RETURN(
        const Buffer* buffer,
        between.communicator->Register(begin + i * bytes, bytes));
    own.scratch.push_back(buffer);
  }
  return own;
}

std::unique_ptr<Transport> MakeTransport(TransportParts parts) {
  return std::make_unique<HierarchicalTransport>(std::move(parts));
}

}  // namespace lockstep::worker::collective::hierarchical
