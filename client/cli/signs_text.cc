#include "client/cli/signs_text.h"

#include <fmt/format.h>

#include "client/cli/job_view.h"
#include "client/cli/text.h"
#include "client/lib/client.h"
#include "common/model/job.h"

namespace lockstep::cli {

const v1::ProgressSigns* SignsOf(const v1::Job& job) {
  const v1::ProgressSigns* best = nullptr;
  if (job.state() != v1::JOB_STATE_RUNNING) return best;
  for (const RankView& view : LastRanks(job)) {
    if (!view.rank->progress().has_signs() || view.rank->has_exit()) continue;
    const v1::ProgressSigns& signs = view.rank->progress().signs();
    if (best == nullptr || signs.source() > best->source() ||
        (signs.source() == best->source() &&
         ToDuration(signs.still()) < ToDuration(best->still()))) {
      best = &signs;
    }
  }
  // A list has no ranks, but the chief's progress.
  if (best == nullptr && job.progress().chief().has_signs()) {
    best = &job.progress().chief().signs();
  }
  return best;
}

std::string SourceText(v1::SignSource source) {
  return std::string(Name(static_cast<SignSource>(source)));
}

std::string SignsText(const v1::Job& job) {
  const v1::ProgressSigns* const signs = SignsOf(job);
  if (signs == nullptr) return "";
  std::string text = SourceText(signs->source());
  if (signs->has_log_step()) {
    text += ": step " + Grouped(signs->log_step());
    if (signs->has_log_total()) text += "/" + Grouped(signs->log_total());
  }
  text += fmt::format(", the last sign {} ago",
                      FormatDuration(ToDuration(signs->still())));
  if (const Duration usual = ToDuration(signs->usual()); usual > Duration{}) {
    text += ", usually within " + FormatDuration(usual);
  }
  return text + fmt::format(", stalled after {} without one",
                            FormatDuration(ToDuration(signs->limit())));
}

}  // namespace lockstep::cli
