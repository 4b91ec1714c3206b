// Sessions in ranks, for those who may cancel the job.
#include <memory>
#include <utility>

#include "common/base/logging.h"
#include "common/rpc/status_conversion.h"
#include "common/wire/session_wire.h"
#include "server/service/job_service.h"
#include "server/service/request.h"
#include "server/service/session_splice.h"

namespace lockstep::server {
namespace {

Status CheckAllowed(SessionPolicy policy, const pki::Identity& caller) {
  if (policy == SessionPolicy::kOff) {
    return WithReason(
        PermissionDenied("this site allows no sessions in ranks (--exec of the "
                         "coordinator)"),
        "SESSIONS_OFF");
  }
  if (policy == SessionPolicy::kAdmins && !caller.IsAdmin()) {
    return WithReason(
        PermissionDenied("this site allows sessions in ranks to admins only "
                         "(--exec of the coordinator)"),
        "SESSIONS_OFF");
  }
  return OkStatus();
}

JobCheck MayEnter(const pki::Identity& caller) {
  return [caller](const Job& job) {
    if (caller.IsAdmin() || OwnerName(caller) == job.owner) return OkStatus();
    return PermissionDenied(
        "job {} belongs to {}: only the owner and admins may enter it",
        job.spec.name, job.owner);
  };
}

// Where a session begins. Copied into its call.
struct SessionOpener {
  pki::Identity caller;
  SessionPolicy policy;
  SessionDesk* desk;
  const ClusterQueries* queries;
  JobCommands* commands;

  StatusOr<std::unique_ptr<SessionDesk::Ticket>> operator()(
      const v1::SessionRequest& open,
      const std::shared_ptr<SessionSplice>& splice) const {
    LOCKSTEP_ASSIGN_OR_RETURN(const SessionRequest request, FromProto(open));
    auto begun = Begin(request, splice);
    if (!begun.ok()) desk->CountRefused(KindOf(request));
    return begun;
  }

 private:
  StatusOr<std::unique_ptr<SessionDesk::Ticket>> Begin(
      const SessionRequest& request,
      const std::shared_ptr<SessionSplice>& splice) const {
    LOCKSTEP_RETURN_IF_ERROR(CheckAllowed(policy, caller));
    LOCKSTEP_ASSIGN_OR_RETURN(
        const FoundRanks found,
        queries->FindRunning(request.name, {request.rank}, MayEnter(caller)));
    const NodeName& node = found.ranks.begin()->first;
    LOCKSTEP_ASSIGN_OR_RETURN(
        auto ticket,
        desk->Open({0, found.generation, request},
                   {OwnerName(caller), found.job_uid, node}, splice));
    const std::string what =
        fmt::format("{} in rank {}", Describe(request), request.rank);
    LOG_INFO("{} opened a session in job {} on node {}: {}", Describe(caller),
             request.name, node, what);
    commands->RecordSession(found,
                            fmt::format("{} ran {}", OwnerName(caller), what),
                            request.port.has_value());
    return ticket;
  }
};

}  // namespace

grpc::ServerBidiReactor<v1::SessionInput, v1::SessionOutput>*
JobService::OpenSession(grpc::CallbackServerContext* context) {
  if (options_.sessions == nullptr) {
    return SessionSplice::ServeClient(
        context, pools_, Duration::zero(),
        [](const v1::SessionRequest&, const std::shared_ptr<SessionSplice>&)
            -> StatusOr<std::unique_ptr<SessionDesk::Ticket>> {
          return Unimplemented("this server has no sessions");
        });
  }
  return SessionSplice::ServeClient(
      context, pools_, options_.sessions->options().patience,
      SessionOpener{CallerOf(*context), options_.session_policy,
                    options_.sessions, queries_, commands_});
}

}  // namespace lockstep::server
