#include "worker/collective/tcp/tuning.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <utility>

namespace lockstep::worker::collective::tcp {
namespace {

constexpr int kMaxRepeats = 64;
// To connect, where little of the budget is left.
constexpr Duration kLeastLimit = std::chrono::milliseconds(50);
constexpr Duration kMostLimit = std::chrono::seconds(5);

// A TuneStep on its way. Little-endian.
struct Message {
  uint32_t what;
  uint32_t repeats;
  uint64_t limit_us;
  uint64_t bytes;
  uint64_t doubling_below;
  uint64_t halving_below;
  uint64_t chunk;
  int32_t ahead;
  int32_t mesh_ranks;
  int32_t streams;
  uint32_t zero;
};
static_assert(sizeof(Message) == 64, "no padding");

Message Encode(const TuneStep& step, Duration limit) {
  Message message{};
  message.what = step.what;
  message.repeats = static_cast<uint32_t>(step.repeats);
  message.limit_us =
      static_cast<uint64_t>(limit / std::chrono::microseconds(1));
  message.bytes = step.bytes;
  message.doubling_below = step.plan.doubling_below;
  message.halving_below = step.plan.halving_below;
  message.chunk = step.plan.chunk;
  message.ahead = step.plan.ahead;
  message.mesh_ranks = step.plan.mesh_ranks;
  message.streams = step.plan.streams;
  return message;
}

StatusOr<TuneStep> Decode(const Message& message, Duration* limit) {
  TuneStep step;
  step.what = static_cast<TuneStep::What>(message.what);
  step.repeats = static_cast<int>(message.repeats);
  step.bytes = message.bytes;
  step.plan = {.doubling_below = message.doubling_below,
               .halving_below = message.halving_below,
               .chunk = message.chunk,
               .ahead = message.ahead,
               .mesh_ranks = message.mesh_ranks,
               .streams = message.streams};
  *limit = std::min<Duration>(
      std::chrono::microseconds(std::min<uint64_t>(message.limit_us, 1 << 30)),
      kMostLimit);
  if (message.what > TuneStep::kDone || step.repeats < 1 ||
      step.repeats > kMaxRepeats || step.bytes > Tuner::kLargest ||
      !CheckPlan(step.plan).ok()) {
    return FailedPrecondition("rank 0 tunes in the way of another version");
  }
  return step;
}

}  // namespace

Tuning::Tuning(Mesh* mesh, Algorithms* algorithms, const Neighbours* neighbours,
               const std::string& address, MonoTime deadline)
    : mesh_(mesh),
      algorithms_(algorithms),
      neighbours_(*neighbours),
      address_(address),
      deadline_(deadline),
      data_(sizeof(Message) / sizeof(float)) {
  mesh_->links()->UseStreams(kMaxStreams);
  opened_ = mesh_->links()->streams();
}

StatusOr<Plan> Tuning::Run(const Plan& plan, Duration budget) {
  const MonoTime start = MonotonicNow();
  Tuner tuner(plan, mesh_->size(), budget);
  for (;;) {
    algorithms_->SetPlan(plan);
    TuneStep next;
    Duration limit{};
    if (mesh_->rank() == 0) {
      const Duration spent = MonotonicNow() - start;
      next = tuner.Next(spent);
      limit = std::clamp(budget - spent, kLeastLimit, kMostLimit);
    }
    LOCKSTEP_ASSIGN_OR_RETURN(const TuneStep step, Share(next, &limit));
    // Whom a rank is connected with does not change.
    if (step.plan.mesh_ranks != plan.mesh_ranks) {
      return FailedPrecondition("rank 0 tunes for other connections");
    }
    if (step.what == TuneStep::kDone) {
      algorithms_->SetPlan(step.plan);
      algorithms_->Trim();
      mesh_->links()->CloseOthers();
      return step.plan;
    }
    if (step.what == TuneStep::kConnect) {
      LOCKSTEP_ASSIGN_OR_RETURN(const bool connected,
                                Connect(step.plan.streams, limit));
      tuner.NoteConnected(connected);
      continue;
    }
    const MonoTime begin = MonotonicNow();
    LOCKSTEP_RETURN_IF_ERROR(Measure(step));
    if (mesh_->rank() == 0) tuner.NoteTime(MonotonicNow() - begin);
  }
}

Status Tuning::Follow(const Plan& from, const Plan& to) {
  algorithms_->SetPlan(from);
  LOCKSTEP_ASSIGN_OR_RETURN(const bool connected,
                            Connect(to.streams, kMostLimit));
  if (!connected) {
    return Unavailable("not all ranks could make {} connections with each peer",
                       to.streams);
  }
  algorithms_->SetPlan(to);
  mesh_->links()->CloseOthers();
  return OkStatus();
}

Status Tuning::RunOne(CollectiveKind kind, size_t count, DataType type,
                      ReduceOp op) {
  const Buffer buffer = {.data = data_.data(),
                         .bytes = data_.size() * sizeof(float)};
  const Operation operation = {
      .kind = kind, .slice = {&buffer, 0, count, type}, .op = op};
  mesh_->Begin(operation, deadline_, Purpose::kTuning);
  return algorithms_->Run(operation);
}

StatusOr<TuneStep> Tuning::Share(TuneStep step, Duration* limit) {
  Message message = Encode(step, *limit);
  std::memcpy(data_.data(), &message, sizeof(message));
  LOCKSTEP_RETURN_IF_ERROR(RunOne(CollectiveKind::kBroadcast, sizeof(message),
                                  DataType::kUint8, ReduceOp::kSum));
  std::memcpy(&message, data_.data(), sizeof(message));
  return Decode(message, limit);
}

Status Tuning::Measure(const TuneStep& step) {
  algorithms_->SetPlan(step.plan);
  const size_t count = step.bytes / sizeof(float);
  if (data_.size() < count) data_.resize(count);
  // What the step left there is no number to reduce.
  std::memset(data_.data(), 0, sizeof(Message));
  for (int i = 0; i < step.repeats; ++i) {
    LOCKSTEP_RETURN_IF_ERROR(RunOne(CollectiveKind::kAllReduce, count,
                                    DataType::kFloat32, ReduceOp::kSum));
  }
  return OkStatus();
}

StatusOr<bool> Tuning::Connect(int streams, Duration limit) {
  if (streams <= opened_) return true;
  auto connections = Open({.first = opened_, .end = streams}, limit);
  // A cut, a lost peer, the deadline.
  LOCKSTEP_RETURN_IF_ERROR(mesh_->error());
  if (absl::IsAborted(connections.status())) return connections.status();
  int32_t fits = connections.ok() ? 1 : 0;
  std::memcpy(data_.data(), &fits, sizeof(fits));
  LOCKSTEP_RETURN_IF_ERROR(
      RunOne(CollectiveKind::kAllReduce, 1, DataType::kInt32, ReduceOp::kMin));
  std::memcpy(&fits, data_.data(), sizeof(fits));
  if (fits != 1 || !connections.ok()) return false;
  mesh_->links()->Add(*std::move(connections));
  opened_ = streams;
  return true;
}

// Also a rank that cannot listen tells the others its port, which is 0.
StatusOr<std::vector<Connection>> Tuning::Open(StreamRange streams,
                                               Duration limit) {
  const auto listener = Listen(address_);
  Neighbours neighbours = neighbours_;
  LOCKSTEP_RETURN_IF_ERROR(
      ExchangePorts(listener.ok() ? listener->port : 0, &neighbours.places));
  LOCKSTEP_RETURN_IF_ERROR(listener.status());
  return ConnectPeers(neighbours, streams, *listener,
                      std::min(deadline_, MonotonicNow() + limit),
                      mesh_->links()->wake_fd());
}

Status Tuning::ExchangePorts(uint16_t mine, std::vector<Place>* places) {
  mesh_->Begin({.kind = CollectiveKind::kBarrier}, deadline_, Purpose::kTuning);
  for (const int peer : neighbours_.peers) {
    LOCKSTEP_RETURN_IF_ERROR(
        mesh_->Exchange(mesh_->To(peer, &mine, sizeof(mine)), {}));
  }
  for (size_t i = 0; i < places->size(); ++i) {
    uint16_t* const port = &(*places)[i].port;
    LOCKSTEP_RETURN_IF_ERROR(mesh_->Exchange(
        {}, mesh_->From(neighbours_.peers[i], port, sizeof(*port))));
  }
  return OkStatus();
}

}  // namespace lockstep::worker::collective::tcp
