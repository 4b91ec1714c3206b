// Evidence about a job's ranks, as they are now or as they were before they
// were stopped, for callers who see the job's details (visibility.h).
#include <algorithm>
#include <memory>
#include <optional>
#include <set>
#include <utility>

#include "common/rpc/status_conversion.h"
#include "common/wire/evidence_wire.h"
#include "common/wire/value_wire.h"
#include "server/service/job_service.h"
#include "server/service/judged_evidence.h"
#include "server/service/request.h"
#include "server/stream/stream_reactor.h"

namespace lockstep::server {
namespace {

// Of an answer; a message has at most 4 MiB.
constexpr size_t kMaxAnswer = 3 << 20;

void AddGroup(const StackGroup& group, v1::JobEvidence* to) {
  v1::StackGroup* const message = to->add_groups();
  message->mutable_ranks()->Add(group.ranks.begin(), group.ranks.end());
  message->set_where(Describe(group.position));
  message->set_collective(group.position.collective);
  message->set_odd(group.odd);
  for (const StackFrame& frame : group.position.frames) {
    WriteValue(frame, message->add_frames());
  }
}

// The ranks of odd groups come first where not all of them fit.
void AddRanks(const std::vector<RankEvidence>& ranks,
              const std::vector<StackGroup>& groups, v1::JobEvidence* to) {
  std::set<int32_t> odd;
  for (const StackGroup& group : groups) {
    if (group.odd) odd.insert(group.ranks.begin(), group.ranks.end());
  }
  size_t size = to->ByteSizeLong();
  size_t left_out = 0;
  for (const bool wanted : {true, false}) {
    for (const RankEvidence& rank : ranks) {
      if (odd.contains(rank.rank) != wanted) continue;
      v1::RankEvidence message = ToProto(rank);
      size += message.ByteSizeLong();
      if (size > kMaxAnswer) {
        ++left_out;
      } else {
        *to->add_ranks() = std::move(message);
      }
    }
  }
  std::sort(to->mutable_ranks()->begin(), to->mutable_ranks()->end(),
            [](const v1::RankEvidence& a, const v1::RankEvidence& b) {
              return a.rank() < b.rank();
            });
  if (left_out > 0) {
    to->add_notes(fmt::format(
        "the stacks of {} ranks are left out, which are in their groups",
        left_out));
  }
}

// When the kept evidence was captured.
WallTime LastTimeOf(const std::vector<RankEvidence>& ranks) {
  WallTime last{};
  for (const RankEvidence& rank : ranks) last = std::max(last, rank.time);
  return last;
}

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
    Fill(collection_->Take(), message);
    return StreamStep::End(OkStatus());
  }

 private:
  void Fill(EvidenceDesk::Collected collected, v1::JobEvidence* message) {
    const JudgedEvidence judged = Judge(found_, std::move(collected.ranks));
    message->set_job(found_.job);
    message->set_generation(found_.generation);
    const bool kept = found_.kept_for != Reason::kNone;
    WriteValue(kept ? LastTimeOf(judged.ranks) : now_, message->mutable_time());
    message->set_trigger(kept ? std::string(Name(found_.kept_for))
                              : std::string("by hand"));
    const HangVerdict& verdict = judged.verdict;
    message->set_verdict(verdict.sentence);
    message->mutable_cause_ranks()->Add(verdict.cause.begin(),
                                        verdict.cause.end());
    for (const std::string& text : verdict.differences) {
      message->add_differences(text);
    }
    for (const std::string& text : verdict.hints) message->add_hints(text);
    for (const std::string& note : collected.notes) message->add_notes(note);
    for (const StackGroup& group : judged.groups) AddGroup(group, message);
    AddRanks(judged.ranks, judged.groups, message);
  }

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
  const std::set<int32_t> ranks(request.ranks().begin(), request.ranks().end());
  const auto may = [&](const Job& job) {
    return CheckSees(reader, job.spec.name, job.owner, "stacks");
  };
  return request.kept() ? queries.FindKept(request.name(), ranks, may)
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
