#include "worker/runtime/testing.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <thread>
#include <utility>

#include "worker/runtime/gradients.h"

namespace lockstep::worker::runtime {
namespace {

using collective::Buffer;
using collective::CollectiveKind;
using collective::Communicator;
using collective::DataType;
using collective::MemoryKind;
using collective::Operation;
using collective::ProgressMode;
using collective::Slice;
using collective::Stream;
using collective::Work;

char* Data(const Slice& slice) {
  return static_cast<char*>(slice.buffer->data) +
         slice.offset * SizeOf(slice.type);
}

template <typename T>
void Sum(const std::vector<Operation>& operations) {
  for (size_t i = 0; i < operations[0].slice.count; ++i) {
    T sum{};
    for (const Operation& operation : operations) {
      sum += reinterpret_cast<const T*>(Data(operation.slice))[i];
    }
    for (const Operation& operation : operations) {
      reinterpret_cast<T*>(Data(operation.slice))[i] = sum;
    }
  }
}

void SumBfloat16(const std::vector<Operation>& operations) {
  for (size_t i = 0; i < operations[0].slice.count; ++i) {
    float sum = 0;
    for (const Operation& operation : operations) {
      const uint16_t word =
          reinterpret_cast<const uint16_t*>(Data(operation.slice))[i];
      sum += std::bit_cast<float>(static_cast<uint32_t>(word) << 16);
    }
    uint16_t rounded = 0;
    RoundFinite({&sum, 1}, {&rounded, 1});
    for (const Operation& operation : operations) {
      reinterpret_cast<uint16_t*>(Data(operation.slice))[i] = rounded;
    }
  }
}

}  // namespace

class FakeCommunicator final : public Communicator {
 public:
  FakeCommunicator(FakeGroup* group, int rank, ProgressMode progress)
      : group_(group), rank_(rank), progress_(progress) {}

  int rank() const override { return rank_; }
  int size() const override { return group_->size(); }
  std::string_view backend() const override { return "fake"; }
  ProgressMode progress() const override { return progress_; }

  StatusOr<const Buffer*> Allocate(size_t bytes) override {
    // Aligned to 64 bytes, as promised.
    memory_.push_back(std::make_unique<char[]>(bytes + 64));
    auto address = reinterpret_cast<uintptr_t>(memory_.back().get());
    address = (address + 63) / 64 * 64;
    buffers_.push_back(
        {reinterpret_cast<void*>(address), bytes, MemoryKind::kHost, -1});
    return &buffers_.back();
  }

  StatusOr<std::unique_ptr<Work>> Start(const Operation& operation,
                                        Stream) override;
  Status WaitFor(uint64_t number, MonoTime deadline);
  // Nothing: it is not done.
  std::optional<MonoTime> EndOf(uint64_t number);

  void Abort(std::string_view reason) override {
    MutexLock lock(&group_->mu_);
    if (broken_.ok()) broken_ = Aborted("{}", reason);
    group_->changed_.NotifyAll();
  }

 private:
  friend class FakeGroup;
  FakeGroup* const group_;
  const int rank_;
  const ProgressMode progress_;
  uint64_t started_ = 0;
  Status broken_;  // Guarded by the group's lock.
  std::vector<std::unique_ptr<char[]>> memory_;
  std::deque<Buffer> buffers_;
};

namespace {

class FakeWork final : public Work {
 public:
  FakeWork(FakeCommunicator* communicator, uint64_t number)
      : communicator_(communicator), number_(number), began_(MonotonicNow()) {}
  Status Wait(MonoTime deadline) override {
    return communicator_->WaitFor(number_, deadline);
  }
  bool Poll() override {
    return communicator_->WaitFor(number_, MonotonicNow()).code() !=
           StatusCode::kDeadlineExceeded;
  }
  std::optional<Span> ran() const override {
    if (communicator_->progress() == ProgressMode::kInline) return std::nullopt;
    const auto ended = communicator_->EndOf(number_);
    if (!ended) return std::nullopt;
    return Span{began_, *ended};
  }

 private:
  FakeCommunicator* const communicator_;
  const uint64_t number_;
  const MonoTime began_;
};

}  // namespace

StatusOr<std::unique_ptr<Work>> FakeCommunicator::Start(
    const Operation& operation, Stream) {
  const uint64_t number = started_++;
  MutexLock lock(&group_->mu_);
  if (!broken_.ok()) return broken_;
  FakeGroup::Pending* pending = group_->At(number);
  pending->operations[static_cast<size_t>(rank_)] = operation;
  ++pending->count;
  if (progress_ != ProgressMode::kInline) group_->MoveOn(number, rank_);
  return std::unique_ptr<Work>(std::make_unique<FakeWork>(this, number));
}

Status FakeCommunicator::WaitFor(uint64_t number, MonoTime deadline) {
  MutexLock lock(&group_->mu_);
  while (true) {
    if (!broken_.ok()) return broken_;
    group_->MoveOn(number, rank_);
    if (group_->At(number)->done) return OkStatus();
    if (group_->dead_ >= 0) {
      broken_ = Unavailable("rank {} is gone", group_->dead_);
      continue;
    }
    group_->waiting_[rank_] = number;
    const bool woken = group_->changed_.WaitUntil(&group_->mu_, deadline);
    group_->waiting_.erase(rank_);
    if (!woken && MonotonicNow() >= deadline) {
      return DeadlineExceeded("operation {} did not end in time", number);
    }
  }
}

std::optional<MonoTime> FakeCommunicator::EndOf(uint64_t number) {
  MutexLock lock(&group_->mu_);
  const FakeGroup::Pending& pending = *group_->At(number);
  if (!pending.done) return std::nullopt;
  return pending.ended;
}

FakeGroup::FakeGroup(int size) : size_(size) {}
FakeGroup::~FakeGroup() = default;

std::unique_ptr<Communicator> FakeGroup::Make(int rank, ProgressMode progress) {
  return std::make_unique<FakeCommunicator>(this, rank, progress);
}

// As a rank does its part of an operation once all have started it.
void FakeGroup::MoveOn(uint64_t number, int rank) {
  Pending* const pending = At(number);
  pending->moved_on[static_cast<size_t>(rank)] = true;
  if (pending->done || pending->count < size_ ||
      std::find(pending->moved_on.begin(), pending->moved_on.end(), false) !=
          pending->moved_on.end()) {
    return;
  }
  Execute(pending);
  pending->done = true;
  pending->ended = MonotonicNow();
  changed_.NotifyAll();
}

void FakeGroup::Kill(int rank) {
  MutexLock lock(&mu_);
  dead_ = rank;
  changed_.NotifyAll();
}

bool FakeGroup::Waits(int rank) {
  MutexLock lock(&mu_);
  const auto waiting = waiting_.find(rank);
  return waiting != waiting_.end() && !At(waiting->second)->done;
}

FakeGroup::Pending* FakeGroup::At(uint64_t number) {
  Pending& pending = pending_[number];
  pending.operations.resize(static_cast<size_t>(size_));
  pending.moved_on.resize(static_cast<size_t>(size_));
  return &pending;
}

void FakeGroup::Execute(Pending* pending) {
  const std::vector<Operation>& all = pending->operations;
  const Slice& first = all[0].slice;
  const size_t bytes = first.count * SizeOf(first.type);
  switch (all[0].kind) {
    case CollectiveKind::kAllReduce:
      if (first.type == DataType::kFloat32) Sum<float>(all);
      if (first.type == DataType::kFloat64) Sum<double>(all);
      if (first.type == DataType::kBfloat16) SumBfloat16(all);
      break;
    case CollectiveKind::kBroadcast:
      for (const Operation& other : all) {
        std::memmove(Data(other.slice),
                     Data(all[static_cast<size_t>(all[0].root)].slice), bytes);
      }
      break;
    case CollectiveKind::kAllGather: {
      const size_t part = bytes / static_cast<size_t>(size_);
      for (size_t from = 0; from < all.size(); ++from) {
        for (const Operation& to : all) {
          std::memmove(Data(to.slice) + from * part,
                       Data(all[from].slice) + from * part, part);
        }
      }
      break;
    }
    default:
      break;
  }
}

void RunRanks(int n, const std::function<void(int rank)>& fn) {
  std::vector<std::thread> threads;
  for (int rank = 0; rank < n; ++rank) threads.emplace_back(fn, rank);
  for (std::thread& thread : threads) thread.join();
}

}  // namespace lockstep::worker::runtime
