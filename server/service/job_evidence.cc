// Evidence about a job's ranks, as they are now or as they were before they
// were stopped, for callers who see the job's details (visibility.h).
#include <memory>
#include <optional>
#include <set>
#include <utility>

#include "common/rpc/status_conversion.h"
#include "server/service/evidence_message.h"
#include "server/service/job_service.h"
#include "server/service/judged_evidence.h"
#include "server/service/request.h"
#include "server/stream/stream_reactor.h"

namespace lockstep::server {
namespace {

class EvidenceCollecting final : public StreamSource<v1::JobEvidence> {
 public:
  EvidenceCollecting(EvidenceDesk* desk, const pki::Identity& caller,
                     FoundRanks found, WallTime now, StreamPeer* peer)
      : desk_(desk),
        found_(std::move(found)),
        now_(now),
        peer_(peer),
        ticket_(desk->limiter(), caller, peer) {}

  StreamStep Next(v1::JobEvidence* message) override {
    if (const auto admitted = ticket_.Poll(); !admitted || !admitted->ok()) {
      return admitted ? StreamStep::End(*admitted)
                      : StreamStep::Sleep(ticket_.deadline());
    }
    if (!collection_) collection_.emplace(desk_, QueriesFor(found_), peer_);
    if (!collection_->Done()) return StreamStep::Sleep(collection_->deadline());
    EvidenceDesk::Collected collected = collection_->Take();
    const JudgedEvidence judged = Judge(found_, std::move(collected.ranks));
    *message = EvidenceMessage(found_, judged, collected.notes, now_);
    return StreamStep::End(OkStatus());
  }

 private:
  EvidenceDesk* const desk_;
  const FoundRanks found_;
  const WallTime now_;
  StreamPeer* const peer_;
  AdmissionLimiter::Ticket ticket_;
  std::optional<EvidenceDesk::Collection> collection_;
};

StatusOr<FoundRanks> FindRanks(const ClusterQueries& queries,
                               const JobReader& reader,
                               const v1::CollectEvidenceRequest& request) {
  LOCKSTEP_RETURN_IF_ERROR(CheckJobName(request.name()));
  if (request.ranks_size() > kMaxRanks) {
    return InvalidArgument("ranks: has {} entries; at most {} are allowed",
                           request.ranks_size(), kMaxRanks);
  }
  if (request.attempt() < 0 || (request.attempt() > 0 && !request.kept())) {
    return InvalidArgument(
        "attempt: is {}; it is the number of an ended attempt, from 1, and "
        "goes with `kept`",
        request.attempt());
  }
  const std::set<int32_t> ranks(request.ranks().begin(), request.ranks().end());
  const auto may = [&](const Job& job) {
    return CheckSees(reader, job.spec.name, job.owner, "stacks");
  };
  return request.kept()
             ? queries.FindKept(request.name(), ranks, request.attempt(), may)
             : queries.FindRunning(request.name(), ranks, may);
}

}  // namespace

grpc::ServerUnaryReactor* JobService::CollectEvidence(
    grpc::CallbackServerContext* context,
    const v1::CollectEvidenceRequest* request, v1::JobEvidence* response) {
  if (evidence_ == nullptr) {
    return Answer(context,
                  ToGrpc(Unimplemented("this server collects no evidence")));
  }
  const auto found = FindRanks(*queries_, ReaderFor(*context), *request);
  if (!found.ok()) return Answer(context, ToGrpc(found.status()));
  const WallTime now = queries_->clock().Now().wall;
  return StartCall<WaitingReactor<v1::JobEvidence>>(
      context, pools_,
      [&](StreamPeer* peer) {
        return std::make_unique<EvidenceCollecting>(
            evidence_, CallerOf(*context), *found, now, peer);
      },
      response);
}

}  // namespace lockstep::server
