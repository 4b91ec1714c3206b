#include "worker/agent/store/rank_table.h"

#include <algorithm>

namespace lockstep::worker::agent {

Rank& RankTable::Get(const RankRef& ref) {
  const auto it = ranks_.find(ref);
  if (it != ranks_.end()) return it->second;
  Rank& rank = ranks_[ref];
  rank.paths = store_->PathsOf(ref.gang, ref.rank);
  rank.start = loop_->Now().wall;
  const LocalGang* gang = core_->Find(ref.gang);
  if (gang == nullptr) return rank;
  rank.job_uid = gang->assignment.job_uid;
  if (!gang->assignment.spec) return rank;
  if (const LocalTask* task = TaskOf(*gang->assignment.spec, ref.rank)) {
    rank.type = task->type;
    rank.index = task->index;
  }
  const GangSpec& spec = *gang->assignment.spec;
  rank.is_program = spec.kind == JobKind::kProgram;
  rank.stall_after = spec.stall_after;
  rank.progress_pattern = spec.progress_pattern;
  rank.output_directory = spec.output_directory;
  rank.attempts_before = std::max(0, spec.attempt - 1);
  rank.gpus = GpusOfRank(gang->assignment, ref.rank);
  return rank;
}

std::vector<RankRef> RankTable::OfGang(const GangKey& key) const {
  std::vector<RankRef> refs;
  for (const auto& [ref, rank] : ranks_) {
    if (ref.gang == key) refs.push_back(ref);
  }
  return refs;
}

bool RankTable::AnyLive() const {
  return std::any_of(ranks_.begin(), ranks_.end(),
                     [](const auto& entry) { return !entry.second.ended; });
}

bool RankTable::HasEnded(const RankRef& ref) const {
  const auto rank = ranks_.find(ref);
  return rank != ranks_.end() && rank->second.ended;
}

}  // namespace lockstep::worker::agent
