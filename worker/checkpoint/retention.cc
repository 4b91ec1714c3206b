#include "worker/checkpoint/retention.h"

#include <algorithm>

namespace lockstep::worker::checkpoint {

std::vector<CheckpointKey> ChooseDeletions(
    std::span<const RetentionCandidate> candidates,
    std::span<const LineageEntry> lineage, const RetentionPolicy& policy) {
  std::vector<RetentionCandidate> live;
  std::vector<CheckpointKey> deletions;
  for (const RetentionCandidate& candidate : candidates) {
    if (IsOnLineage(lineage, candidate.key)) live.push_back(candidate);
  }
  std::sort(live.begin(), live.end(),
            [](const RetentionCandidate& a, const RetentionCandidate& b) {
              return a.key > b.key;
            });
  const int keep = std::max(1, policy.keep_last);
  int kept = 0;
  for (const RetentionCandidate& candidate : live) {
    if (kept < keep) {
      kept += candidate.verified;
    } else if (policy.keep_every_steps <= 0 ||
               candidate.key.step % policy.keep_every_steps != 0) {
      deletions.push_back(candidate.key);
    }
  }
  if (kept == 0) return {};
  std::erase_if(deletions, [&policy](const CheckpointKey& key) {
    return policy.pinned.contains(key);
  });
  std::sort(deletions.begin(), deletions.end());
  return deletions;
}

}  // namespace lockstep::worker::checkpoint
