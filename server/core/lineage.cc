#include "server/core/lineage.h"

#include <algorithm>
#include <cstdint>
#include <limits>

namespace lockstep::server {
namespace {

// The value of an entry. The least valuable goes first.
enum class Worth { kNothing, kOneStep, kUnknown, kSteps, kLast };

bool SaysWhere(const LineageEntry& entry) {
  return entry.start_step != LineageEntry::kNotSaid;
}

std::vector<Worth> Weigh(const std::vector<LineageEntry>& lineage) {
  std::vector<Worth> worth(lineage.size(), Worth::kLast);
  // The first step at which a later generation began.
  int64_t end = std::numeric_limits<int64_t>::max();
  for (size_t i = lineage.size(); i-- > 0;) {
    const LineageEntry& entry = lineage[i];
    if (i + 1 < lineage.size()) {
      worth[i] = !SaysWhere(entry)         ? Worth::kUnknown
                 : entry.start_step > end  ? Worth::kNothing
                 : entry.start_step == end ? Worth::kOneStep
                                           : Worth::kSteps;
    }
    if (SaysWhere(entry)) end = std::min(end, entry.start_step);
  }
  return worth;
}

// Removes entries of this worth, the oldest first, until `most` are left.
void Drop(Worth worth, size_t most, std::vector<LineageEntry>* lineage) {
  const std::vector<Worth> worths = Weigh(*lineage);
  size_t excess = lineage->size() - std::min(most, lineage->size());
  std::vector<LineageEntry> kept;
  for (size_t i = 0; i < lineage->size(); ++i) {
    if (worths[i] == worth && excess > 0) {
      --excess;
    } else {
      kept.push_back((*lineage)[i]);
    }
  }
  *lineage = std::move(kept);
}

}  // namespace

void CompactLineage(std::vector<LineageEntry>* lineage, size_t most) {
  // A later generation that began no later ends these.
  Drop(Worth::kNothing, 0, lineage);
  if (lineage->size() <= most) return;
  for (const Worth worth : {Worth::kOneStep, Worth::kUnknown, Worth::kSteps}) {
    Drop(worth, most, lineage);
  }
}

void AddGeneration(Job* job) {
  std::vector<LineageEntry>* const lineage = &job->lineage;
  if (!lineage->empty() && !SaysWhere(lineage->back()) &&
      (job->output_hold || !job->cluster)) {
    lineage->pop_back();
  }
  // The coordinator's knowledge may be old, because a lost host may not have
  // reported. The ranks use the newest checkpoint on disk and report it.
  lineage->push_back(
      {job->generation, job->generation == 1 ? 0 : LineageEntry::kNotSaid});
  CompactLineage(lineage);
}

}  // namespace lockstep::server
