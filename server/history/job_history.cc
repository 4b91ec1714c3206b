#include "server/history/job_history.h"

#include <algorithm>
#include <bit>
#include <set>
#include <utility>

namespace lockstep::server {
namespace {

// A float without the lower half of its bits, rounded to nearest.
uint16_t Pack(float value) {
  if (!IsKnown(value)) return 0x7fc0;
  return static_cast<uint16_t>((std::bit_cast<uint32_t>(value) + 0x8000U) >>
                               16U);
}

float Unpack(uint16_t packed) {
  return std::bit_cast<float>(static_cast<uint32_t>(packed) << 16U);
}

constexpr size_t kP99 = static_cast<size_t>(JobSeries::kStepP99);

// Compares numbers of ranks.
struct RankOrder {
  static int32_t Number(int32_t rank) { return rank; }
  static int32_t Number(const JobSample::Rank& rank) { return rank.rank; }
  template <typename A, typename B>
  bool operator()(const A& a, const B& b) const {
    return Number(a) < Number(b);
  }
};

WallTime TimeOfSlot(int64_t slot, Duration step) {
  return WallTime(step * slot);
}

}  // namespace

size_t BlockBytes(size_t values, size_t ranks) {
  return kBlockPoints * ((kJobSeries + values) * sizeof(float) +
                         ranks * kRankSeries * sizeof(uint16_t));
}

size_t BytesBound(size_t values, size_t ranks) {
  size_t blocks = 0;
  for (const HistoryLevel& level : kHistoryLevels) blocks += level.blocks + 1;
  return blocks * BlockBytes(values, ranks);
}

JobHistory::JobHistory() = default;

bool JobHistory::Layout::Has(const JobSample& sample) const {
  return std::all_of(sample.values.begin(), sample.values.end(),
                     [this](const auto& value) {
                       return std::binary_search(names.begin(), names.end(),
                                                 value.first);
                     }) &&
         std::includes(ranks.begin(), ranks.end(), sample.ranks.begin(),
                       sample.ranks.end(), RankOrder());
}

size_t JobHistory::BytesOf(const Block& block) const {
  return BlockBytes(block.layout->names.size(), block.layout->ranks.size());
}

bool JobHistory::NeedsBlock(size_t level, int64_t slot,
                            bool same_layout) const {
  const auto& blocks = levels_[level].blocks;
  return blocks.empty() || !same_layout || blocks.back().layout != layout_ ||
         slot >= blocks.back().first + static_cast<int64_t>(kBlockPoints);
}

size_t JobHistory::Needs(WallTime now, const JobSample& sample) const {
  const bool same = layout_ != nullptr && layout_->Has(sample);
  size_t needed = 0;
  for (size_t i = 0; i < levels_.size(); ++i) {
    const int64_t slot = now.time_since_epoch() / kHistoryLevels[i].step;
    if (NeedsBlock(i, slot, same)) ++needed;
  }
  size_t values = sample.values.size();
  size_t ranks = sample.ranks.size();
  if (layout_ != nullptr) {
    // The layout only grows.
    values = std::min(kMaxValuesInHistory, values + layout_->names.size());
    ranks += layout_->ranks.size();
    if (same) {
      values = layout_->names.size();
      ranks = layout_->ranks.size();
    }
  }
  return needed * BlockBytes(values, ranks);
}

void JobHistory::Extend(const JobSample& sample) {
  std::set<std::string> names;
  std::set<int32_t> ranks;
  for (const auto& [name, value] : sample.values) names.insert(name);
  for (const auto& rank : sample.ranks) ranks.insert(rank.rank);
  if (layout_ != nullptr) {
    ranks.insert(layout_->ranks.begin(), layout_->ranks.end());
    for (const std::string& name : layout_->names) {
      if (names.size() < kMaxValuesInHistory) names.insert(name);
    }
  }
  auto layout = std::make_shared<Layout>();
  layout->names.assign(names.begin(), names.end());
  layout->ranks.assign(ranks.begin(), ranks.end());
  layout_ = std::move(layout);
}

void JobHistory::Add(WallTime now, const JobSample& sample) {
  if (layout_ == nullptr || !layout_->Has(sample)) Extend(sample);
  for (size_t i = 0; i < levels_.size(); ++i) {
    AddTo(i, now.time_since_epoch() / kHistoryLevels[i].step, sample);
  }
  if (sample.checkpoint) {
    checkpoints_.push_back(*sample.checkpoint);
    if (checkpoints_.size() > kMaxCheckpointsInHistory) {
      checkpoints_.pop_front();
    }
  }
}

void JobHistory::Mix(const JobSample& sample, Level* level) const {
  const auto add = [level](size_t column, float value) {
    if (!IsKnown(value)) return;
    float& sum = level->sums[column];
    if (column == kP99) {
      sum = level->counts[column] == 0 ? value : std::max(sum, value);
    } else {
      sum += value;
    }
    ++level->counts[column];
  };
  for (size_t s = 0; s < kJobSeries; ++s) add(s, sample.job[s]);
  for (size_t n = 0; n < layout_->names.size(); ++n) {
    const auto value = sample.values.find(layout_->names[n]);
    if (value != sample.values.end()) add(kJobSeries + n, value->second);
  }
  // Both are ascending.
  auto rank = sample.ranks.begin();
  for (size_t r = 0; r < layout_->ranks.size(); ++r) {
    if (rank == sample.ranks.end()) return;
    if (rank->rank != layout_->ranks[r]) continue;
    for (size_t s = 0; s < kRankSeries; ++s) {
      add(layout_->columns() + r * kRankSeries + s, rank->series[s]);
    }
    ++rank;
  }
}

void JobHistory::AddTo(size_t number, int64_t slot, const JobSample& sample) {
  Level& level = levels_[number];
  const size_t job_columns = layout_->columns();
  const size_t columns = job_columns + layout_->rank_columns();
  const bool new_block = NeedsBlock(number, slot, true);
  if (new_block) {
    Block block{slot, layout_, {}, {}};
    block.job.assign(job_columns * kBlockPoints, kNoValue);
    block.ranks.assign(layout_->rank_columns() * kBlockPoints, Pack(kNoValue));
    bytes_ += BytesOf(block);
    level.blocks.push_back(std::move(block));
    while (level.blocks.size() > kHistoryLevels[number].blocks + 1) {
      PopFront(&level);
    }
  }
  if (new_block || slot != level.slot) {
    level.slot = slot;
    level.sums.assign(columns, 0);
    level.counts.assign(columns, 0);
  }
  Mix(sample, &level);
  Block& block = level.blocks.back();
  const auto at = static_cast<size_t>(slot - block.first);
  for (size_t i = 0; i < columns; ++i) {
    if (level.counts[i] == 0) continue;
    const float mean =
        i == kP99 ? level.sums[i]
                  : level.sums[i] / static_cast<float>(level.counts[i]);
    if (i < job_columns) {
      block.job[i * kBlockPoints + at] = mean;
    } else {
      block.ranks[(i - job_columns) * kBlockPoints + at] = Pack(mean);
    }
  }
}

void JobHistory::PopFront(Level* level) {
  bytes_ -= BytesOf(level->blocks.front());
  level->blocks.pop_front();
}

bool JobHistory::DropOldest() {
  Level* fullest = nullptr;
  size_t most = 0;
  for (Level& level : levels_) {
    size_t bytes = 0;
    for (const Block& block : level.blocks) bytes += BytesOf(block);
    if (bytes > most) {
      most = bytes;
      fullest = &level;
    }
  }
  if (fullest == nullptr) return false;
  PopFront(fullest);
  return true;
}

void JobHistory::Read(const Block& block, Duration step, WallTime until,
                      PlotBuilder* builder) {
  const Layout& layout = *block.layout;
  for (size_t at = 0; at < kBlockPoints; ++at) {
    const WallTime time =
        TimeOfSlot(block.first + static_cast<int64_t>(at), step);
    if (time >= until) return;
    const PlotBuilder::Bins bins = builder->BinsOf(time, step);
    if (bins.begin == bins.end) continue;
    const float* value = &block.job[at];
    for (size_t s = 0; s < kJobSeries; ++s, value += kBlockPoints) {
      builder->Add(bins, static_cast<JobSeries>(s), *value);
    }
    for (const std::string& name : layout.names) {
      builder->Add(bins, name, *value);
      value += kBlockPoints;
    }
    for (size_t r = 0; r < layout.ranks.size(); ++r) {
      for (size_t s = 0; s < kRankSeries; ++s) {
        builder->Add(
            bins, layout.ranks[r], static_cast<RankSeries>(s),
            Unpack(block.ranks[(r * kRankSeries + s) * kBlockPoints + at]));
      }
    }
  }
}

std::optional<WallTime> JobHistory::oldest() const {
  std::optional<WallTime> oldest;
  for (size_t i = 0; i < levels_.size(); ++i) {
    if (levels_[i].blocks.empty()) continue;
    const WallTime time =
        TimeOfSlot(levels_[i].blocks.front().first, kHistoryLevels[i].step);
    if (!oldest || time < *oldest) oldest = time;
  }
  return oldest;
}

std::optional<WallTime> JobHistory::AddTo(PlotBuilder* builder) const {
  WallTime until = WallTime::max();
  for (size_t i = 0; i < levels_.size(); ++i) {
    const Duration step = kHistoryLevels[i].step;
    for (const Block& block : levels_[i].blocks) {
      Read(block, step, until, builder);
    }
    if (levels_[i].blocks.empty()) continue;
    until = std::min(until, TimeOfSlot(levels_[i].blocks.front().first, step));
  }
  for (const WallTime time : checkpoints_) builder->AddCheckpoint(time);
  return oldest();
}

}  // namespace lockstep::server
