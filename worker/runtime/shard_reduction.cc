#include "worker/runtime/shard_reduction.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "worker/runtime/gradients.h"

namespace lockstep::worker::runtime {

using collective::CollectiveKind;
using collective::DataType;

ShardReduction::ShardReduction(Progress* progress,
                               std::unique_ptr<GradientBuckets> buckets,
                               int world_size, Duration operation_timeout)
    : GradientReduction(nullptr, progress, std::move(buckets),
                        operation_timeout) {
  membership_.world_size = world_size;
}

Status ShardReduction::Allocate(bool with_norm) {
  with_norm_ = with_norm;
  memory_.resize(buckets_->buckets());
  const auto shards = static_cast<size_t>(membership_.world_size);
  const size_t members = std::max<size_t>(2, shards - 1);
  for (size_t b = 0; b < memory_.size(); ++b) {
    memory_[b].rows.resize(shards * PartOf(b, members));
  }
  return OkStatus();
}

void ShardReduction::AllocateFor(size_t bucket) {
  Memory& memory = memory_[bucket];
  const auto shards = static_cast<size_t>(membership_.world_size);
  const size_t rows = alone() ? 0 : shards * PartOf(bucket);
  if (memory.rows.size() < rows) memory.rows = std::vector<float>(rows);
  const std::vector<int>& own = membership_.own_shards();
  const bool is_first = own.front() < 2 && shards > 1;
  const size_t copies = std::max<size_t>(own.size() - 1, is_first ? 1 : 0);
  memory.copies.resize(copies);
  for (std::vector<float>& copy : memory.copies) {
    copy.resize(buckets_->room(bucket).size());
  }
}

void ShardReduction::Unbind() {
  for (Memory& memory : memory_) memory.exchanges.clear();
  GradientReduction::Unbind();
}

Status ShardReduction::Rebind(collective::Communicator* communicator,
                              const Membership& membership) {
  Bind(communicator);
  membership_ = membership;
  LOCKSTEP_RETURN_IF_ERROR(buckets_->Rebind(communicator));
  if (with_norm_) {
    LOCKSTEP_ASSIGN_OR_RETURN(
        norm_,
        communicator->Allocate(sizeof(double) *
                               static_cast<size_t>(membership.world_size)));
  }
  LOCKSTEP_ASSIGN_OR_RETURN(any_, communicator->AnyMemory());
  for (size_t b = 0; b < memory_.size(); ++b) {
    AllocateFor(b);
    memory_[b].exchanges =
        std::vector<Exchange>(static_cast<size_t>(membership.rounds()));
  }
  return OkStatus();
}

void ShardReduction::BeginStep(int64_t step) {
  GradientReduction::BeginStep(step);
  exchanged_ = false;
}

size_t ShardReduction::PartOf(size_t bucket) const {
  return PartOf(bucket, static_cast<size_t>(membership_.size()));
}

size_t ShardReduction::PartOf(size_t bucket, size_t members) const {
  const size_t elements = buckets_->slice(bucket).count;
  const size_t even = (elements + members - 1) / members;
  constexpr size_t kLine = GradientMemory::kAlignment / sizeof(float);
  return (even + kLine - 1) / kLine * kLine;
}

float* ShardReduction::ShardMemory(size_t bucket, size_t round) {
  const size_t own = membership_.own_shards().size();
  if (round >= own) return nullptr;
  return round + 1 == own ? buckets_->room(bucket).data()
                          : memory_[bucket].copies[round].data();
}

Status ShardReduction::StartExchange(size_t bucket, size_t round) {
  if (alone()) return OkStatus();
  const size_t part = PartOf(bucket);
  float* const own = ShardMemory(bucket, round);
  if (!communicator_->HasAllToAll()) return StartGathered(bucket, round, own);
  Exchange& exchange = memory_[bucket].exchanges[round];
  const auto members = static_cast<size_t>(membership_.size());
  exchange.sends.assign(members, {});
  exchange.receives.assign(members, {});
  float* const rows = memory_[bucket].rows.data();
  for (size_t p = 0; p < members; ++p) {
    if (own != nullptr) exchange.sends[p] = {own + p * part, part};
    const std::vector<int>& shards = membership_.shards[p];
    if (round >= shards.size()) continue;
    const auto shard = static_cast<size_t>(shards[round]);
    exchange.receives[p] = {rows + shard * part, part};
  }
  return Start({.kind = CollectiveKind::kAllToAll,
                .slice = {any_, 0, members * part, DataType::kFloat32},
                .sends = exchange.sends,
                .receives = exchange.receives},
               &exchange.works);
}

Status ShardReduction::StartGathered(size_t bucket, size_t round,
                                     const float* own) {
  Exchange& exchange = memory_[bucket].exchanges[round];
  const auto members = static_cast<size_t>(membership_.size());
  const size_t whole = members * PartOf(bucket);
  exchange.gathered.resize(members * whole);
  if (own != nullptr) {
    std::memcpy(exchange.gathered.data() +
                    static_cast<size_t>(membership_.place) * whole,
                own, whole * sizeof(float));
  }
  return Start(
      {.kind = CollectiveKind::kAllGather,
       .slice = AnySlice(any_, exchange.gathered.data(),
                         exchange.gathered.size(), DataType::kFloat32)},
      &exchange.works);
}

void ShardReduction::TakeGathered(size_t bucket, size_t round) {
  const std::vector<float>& gathered =
      memory_[bucket].exchanges[round].gathered;
  const size_t part = PartOf(bucket);
  const auto members = static_cast<size_t>(membership_.size());
  const auto place = static_cast<size_t>(membership_.place);
  for (size_t p = 0; p < members; ++p) {
    const std::vector<int>& shards = membership_.shards[p];
    if (round >= shards.size()) continue;
    std::memcpy(
        memory_[bucket].rows.data() + static_cast<size_t>(shards[round]) * part,
        gathered.data() + (p * members + place) * part, part * sizeof(float));
  }
}

// Of the last own shard, in order.
Status ShardReduction::StartFull() {
  if (communicator_ == nullptr || !IsLastShard()) return OkStatus();
  for (; Starts(); ++started_) {
    buckets_->Seal(started_);
    LOCKSTEP_RETURN_IF_ERROR(StartExchange(started_, shard_));
  }
  return OkStatus();
}

bool ShardReduction::IsUnderWay() const {
  return communicator_ != nullptr &&
         (shard_ > 0 || started_ > 0 || (IsLastShard() && Starts()));
}

void ShardReduction::PollInline() {
  if (!inline_) return;
  for (const Memory& memory : memory_) {
    for (const Exchange& exchange : memory.exchanges) {
      for (const auto& work : exchange.works) (void)work->Poll();
    }
  }
  GradientReduction::PollInline();
}

Status ShardReduction::EndShard() {
  if (IsLastShard()) {
    return GradientReduction::EndShard();
  }
  for (size_t b = 0; b < memory_.size(); ++b) {
    buckets_->Seal(b);
    const std::span<const float> whole = buckets_->room(b);
    std::copy(whole.begin(), whole.end(), memory_[b].copies[shard_].begin());
    LOCKSTEP_RETURN_IF_ERROR(StartExchange(b, shard_));
  }
  finite_ = finite_ && !buckets_->states().nonfinite();
  buckets_->BeginStep();
  ++shard_;
  return OkStatus();
}

Status ShardReduction::StartLaterRounds() {
  const auto rounds = static_cast<size_t>(membership_.rounds());
  for (size_t round = membership_.own_shards().size(); round < rounds;
       ++round) {
    for (size_t b = 0; b < memory_.size(); ++b) {
      LOCKSTEP_RETURN_IF_ERROR(StartExchange(b, round));
    }
  }
  return OkStatus();
}

StatusOr<bool> ShardReduction::StartRest() {
  LOCKSTEP_RETURN_IF_ERROR(CheckLastShard(shard_, membership_));
  LOCKSTEP_RETURN_IF_ERROR(StartFull());
  LOCKSTEP_RETURN_IF_ERROR(StartLaterRounds());
  exchanged_ = true;
  return finite_ && !buckets_->states().nonfinite();
}

// Waits for the parts of the bucket, and sums them.
Status ShardReduction::SumBucket(size_t bucket) {
  Memory& memory = memory_[bucket];
  const auto shards = static_cast<size_t>(membership_.world_size);
  std::vector<const float*> parts(shards);
  const std::span<float> whole = buckets_->room(bucket);
  if (alone()) {
    const std::vector<int>& own = membership_.own_shards();
    for (size_t round = 0; round < own.size(); ++round) {
      parts[static_cast<size_t>(own[round])] = ShardMemory(bucket, round);
    }
    SumInOrder(parts, whole);
    return OkStatus();
  }
  const size_t part = PartOf(bucket);
  for (size_t s = 0; s < shards; ++s) parts[s] = memory.rows.data() + s * part;
  const std::span<float> mine =
      whole.subspan(static_cast<size_t>(membership_.place) * part, part);
  SumInOrder(parts, mine);
  return Start(
      {.kind = CollectiveKind::kAllGather,
       .slice = AnySlice(any_, whole.data(),
                         static_cast<size_t>(membership_.size()) * part,
                         DataType::kFloat32)},
      &works_);
}

Status ShardReduction::WaitAll(MonoTime arrived) {
  // A round of the tail alone, or the norm, has no buckets.
  if (!std::exchange(exchanged_, false)) {
    return GradientReduction::WaitAll(arrived);
  }
  PollInline();
  for (size_t b = 0; b < memory_.size(); ++b) {
    std::vector<Exchange>& exchanges = memory_[b].exchanges;
    for (size_t round = 0; round < exchanges.size(); ++round) {
      LOCKSTEP_RETURN_IF_ERROR(WaitFor(&exchanges[round].works, arrived));
      if (!exchanges[round].gathered.empty()) TakeGathered(b, round);
    }
    LOCKSTEP_RETURN_IF_ERROR(SumBucket(b));
  }
  return GradientReduction::WaitAll(arrived);
}

StatusOr<double> ShardReduction::Norm(MonoTime arrived) {
  const auto shards = static_cast<size_t>(membership_.world_size);
  const std::span<double> squares(static_cast<double*>(norm_->data), shards);
  std::fill(squares.begin(), squares.end(), 0.0);
  for (const int shard : membership_.own_shards()) {
    squares[static_cast<size_t>(shard)] =
        SquaresOfPart(buckets_.get(), shard, membership_.world_size);
  }
  // Each number has one contributor, so the sums are exact.
  LOCKSTEP_RETURN_IF_ERROR(Start(
      {CollectiveKind::kAllReduce, {norm_, 0, shards, DataType::kFloat64}},
      &works_));
  LOCKSTEP_RETURN_IF_ERROR(WaitAll(arrived));
  double sum = 0;
  for (const double each : squares) sum += each;
  return std::sqrt(sum);
}

}  // namespace lockstep::worker::runtime
