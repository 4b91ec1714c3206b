#include "worker/agent/link/rank_news.h"

#include <algorithm>
#include <string>
#include <utility>

#include "common/model/reduction_plan.h"
#include "common/wire/field_checker.h"
#include "common/wire/worker_wire.h"
#include "worker/agent/core/printable_text.h"

namespace lockstep::worker::agent {
namespace {

// What would make the coordinator refuse the whole status is not passed on.
void TakeReductionPlan(const v1::RankReport& report, RankNews* news) {
  if (report.reduction_plan().empty()) return;
  const auto plan = ParseReductionPlan(report.reduction_plan());
  if (plan.ok()) {
    news->reduction_plan = report.reduction_plan();
  } else {
    news->event = "sent an invalid reduction plan: " +
                  std::string(Message(plan.status()));
  }
}

// A rank speaks of what it alone sees; the other reasons are not its to give.
Reason EventReasonOf(const v1::RankReport& report) {
  switch (report.event_reason()) {
    case v1::REASON_CHECKPOINT_DAMAGED:
      return Reason::kCheckpointDamaged;
    case v1::REASON_OUTPUT_FULL:
      return Reason::kOutputFull;
    case v1::REASON_RECOVERED:
      return Reason::kRecovered;
    default:
      return Reason::kNone;
  }
}

}  // namespace

RankNews NewsOf(const v1::RankReport& report) {
  constexpr size_t kMaxSentence = 1024;
  RankNews news;
  if (!report.checkpoint_path().empty()) {
    Checkpoint checkpoint;
    checkpoint.step =
        std::clamp<int64_t>(report.checkpoint_step(), 0, kMaxExact);
    checkpoint.path = PrintableText(report.checkpoint_path(), 4095);
    checkpoint.bytes = std::max<int64_t>(0, report.checkpoint_bytes());
    news.checkpoint = std::move(checkpoint);
  }
  news.artifact_name = PrintableText(report.artifact_name(), 64);
  news.artifact_path = PrintableText(report.artifact_path(), 4095);
  news.event = PrintableText(report.event(), kMaxSentence);
  news.event_reason = EventReasonOf(report);
  news.failure = PrintableText(report.failure(), kMaxSentence);
  const auto reason =
      FromProto(static_cast<v1::Reason>(report.failure_reason()));
  if (reason.ok()) news.failure_reason = *reason;
  news.victim = report.victim();
  news.lost_peers = {report.lost_peers().begin(), report.lost_peers().end()};
  news.lost_peer_error = PrintableText(report.failure(), kMaxLostPeerError);
  if (report.has_resumed_step()) {
    news.resumed_step =
        std::clamp<int64_t>(report.resumed_step(), -1, kMaxExact);
  }
  news.directive_done = std::min(report.directive_done(), 4095u);
  news.parked = report.parked();
  TakeReductionPlan(report, &news);
  return news;
}

}  // namespace lockstep::worker::agent
