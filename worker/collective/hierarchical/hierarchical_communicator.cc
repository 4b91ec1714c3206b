#include "worker/collective/hierarchical/hierarchical_communicator.h"

#include <algorithm>
#include <string>
#include <utility>

#include "worker/collective/hierarchical/hierarchical_transport.h"
#include "worker/collective/hierarchical/host_layout.h"
#include "worker/collective/hierarchical/linked_abort.h"
#include "worker/collective/hierarchical/plan_line.h"
#include "worker/collective/hierarchical/prefix_store.h"
#include "worker/collective/shm/shm_communicator.h"
#include "worker/collective/tcp/tcp_communicator.h"
#include "worker/collective/threaded_communicator.h"

namespace lockstep::worker::collective::hierarchical {
namespace {

using hierarchical::Side;
using hierarchical::Translate;

// One of the two, and how it is formed.
struct Part {
  LinkedAbort::From side;
  std::string prefix;
  const char* where;
  FormFunction form;
  std::string plan;  // CommunicatorOptions::reduction_plan
};

StatusOr<Side> FormSide(const CommunicatorOptions& options,
                        std::vector<int> ranks, const Part& what,
                        const std::shared_ptr<LinkedAbort>& linked_abort) {
  Side side{nullptr, std::move(ranks)};
  if (side.ranks.size() < 2) return side;
  PrefixStore store(options.rendezvous, what.prefix);
  CommunicatorOptions part = options;
  const auto me = std::find(side.ranks.begin(), side.ranks.end(), options.rank);
  part.rank = static_cast<int>(me - side.ranks.begin());
  part.size = static_cast<int>(side.ranks.size());
  part.label = what.where;
  part.rendezvous = &store;
  part.reduction_plan = what.plan;
  const BrokenFunction broken = [linked_abort, from = what.side,
                                 all = side.ranks,
                                 size = options.size](const Status& status) {
    linked_abort->Break(from, Translate(status, all, size));
  };
  auto formed = what.form(part, broken);
  if (!formed.ok()) {
    return Annotate(Translate(formed.status(), side.ranks, options.size),
                    options.label);
  }
  side.communicator = *std::move(formed);
  return side;
}

// The plan between the hosts, the same on all ranks, though not all take part
// there: rank 0 tells.
StatusOr<std::string> BetweenLine(const CommunicatorOptions& options,
                                  const HostLayout& layout,
                                  const Side& between) {
  if (layout.hosts() == 1) return std::string();
  constexpr char kKey[] = "hierarchical/plan";
  if (options.rank != 0) {
    auto line = options.rendezvous->Get(kKey, options.forming_deadline);
    if (!line.ok()) return Annotate(line.status(), options.label);
    return line;
  }
  const std::string line = between.communicator->ReductionPlan();
  LOCKSTEP_RETURN_IF_ERROR(options.rendezvous->Put(kKey, line));
  return line;
}

}  // namespace

StatusOr<std::unique_ptr<Communicator>> FormHierarchical(
    const CommunicatorOptions& options, const std::vector<int>& hosts,
    const HierarchicalParts& parts) {
  const FormFunction form_shm = [](const auto& part, const auto& broken) {
    return shm::FormShm(part, broken);
  };
  const FormFunction form_tcp = [](const auto& part, const auto& broken) {
    return tcp::FormTcp(part, broken);
  };
  LOCKSTEP_ASSIGN_OR_RETURN(HostLayout layout, LayOutHosts(hosts));
  if (layout.size() != options.size || options.size < 2) {
    return InvalidArgument("{}: hosts of {} ranks, but there are {}",
                           options.label, layout.size(), options.size);
  }
  std::string between_plan;
  if (!options.reduction_plan.empty()) {
    auto plan = BetweenPlanOf(options.reduction_plan, layout.host);
    if (!plan.ok()) return Annotate(plan.status(), options.label);
    between_plan = *std::move(plan);
  }
  const int host = layout.host[options.rank];
  const int place = layout.place[options.rank];
  const auto linked_abort = std::make_shared<LinkedAbort>();
  LOCKSTEP_ASSIGN_OR_RETURN(
      Side within,
      FormSide(options, layout.ranks[host],
               {LinkedAbort::From::kWithin, fmt::format("host/{}/", host),
                "within its host", parts.within ? parts.within : form_shm, ""},
               linked_abort));
  LOCKSTEP_ASSIGN_OR_RETURN(
      Side between,
      FormSide(options, layout.Across(options.rank),
               {LinkedAbort::From::kBetween, fmt::format("place/{}/", place),
                "between the hosts", parts.between ? parts.between : form_tcp,
                between_plan},
               linked_abort));
  LOCKSTEP_ASSIGN_OR_RETURN(std::string between_line,
                            BetweenLine(options, layout, between));
  LOCKSTEP_ASSIGN_OR_RETURN(hierarchical::OwnMemory own,
                            hierarchical::AllocateOwn(layout, within, between));
  return MakeThreadedCommunicator(
      {.rank = options.rank,
       .size = options.size,
       .label = options.label,
       .operation_timeout = options.operation_timeout},
      hierarchical::MakeTransport(
          {.rank = options.rank,
           .layout = std::move(layout),
           .within = std::move(within),
           .between = std::move(between),
           .linked_abort = linked_abort,
           .plan_given = !options.reduction_plan.empty(),
           .between_line = std::move(between_line),
           .own = std::move(own)}));
}

}  // namespace lockstep::worker::collective::hierarchical
