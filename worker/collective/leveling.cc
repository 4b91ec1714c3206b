#include "worker/collective/leveling.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <optional>
#include <utility>

#include "common/base/crc32c.h"
#include "common/base/hash.h"

namespace lockstep::worker::collective {
namespace {

constexpr size_t kMaxSmall = 64 << 20;
// What most recoveries send: little, and each page that a communicator has
// costs time, at its begin and at its end.
constexpr size_t kSmallStaging = 256 << 10;

// A LevelRecord as bytes, with the sizes of the memory's parts.
struct WireRecord {
  uint64_t flags = 0;
  int64_t committed = 0;
  uint64_t digest = 0;
  uint64_t layout = 0;
};
constexpr uint64_t kHasState = 1;
constexpr uint64_t kInFlight = 2;
constexpr uint64_t kLearned = 4;

WireRecord ToWire(const LevelRecord& record, uint64_t layout) {
  WireRecord wire;
  wire.flags = (record.has_state ? kHasState : 0) |
               (record.in_flight ? kInFlight : 0) |
               (record.learned ? kLearned : 0);
  wire.committed = record.committed;
  wire.digest = record.digest;
  wire.layout = layout;
  return wire;
}

LevelRecord FromWire(const WireRecord& wire) {
  return {.has_state = (wire.flags & kHasState) != 0,
          .committed = wire.committed,
          .digest = wire.digest,
          .in_flight = (wire.flags & kInFlight) != 0,
          .learned = (wire.flags & kLearned) != 0};
}

uint64_t Mix(uint64_t hash, uint64_t value) {
  return SplitMix(hash + kSplitMixIncrement) ^ SplitMix(value);
}

uint64_t LayoutOf(const StateMemory& memory, const StateMemory& on_device) {
  uint64_t hash = Mix(0, memory.size());
  for (const auto& part : memory) hash = Mix(hash, part.size());
  if (on_device.empty()) return hash;
  hash = Mix(hash, on_device.size());
  for (const auto& part : on_device) hash = Mix(hash, part.size());
  return hash;
}

struct Chunk {
  std::span<std::byte> bytes;
  bool on_device = false;
};

// The memory in pieces of at most kLevelChunk bytes, each within one part.
std::vector<Chunk> ChunksOf(const StateMemory& memory,
                            const StateMemory& on_device) {
  std::vector<Chunk> chunks;
  for (const StateMemory* parts : {&memory, &on_device}) {
    for (std::span<std::byte> part : *parts) {
      while (!part.empty()) {
        const size_t size = std::min(part.size(), kLevelChunk);
        chunks.push_back({part.first(size), parts == &on_device});
        part = part.subspan(size);
      }
    }
  }
  return chunks;
}

uint32_t CrcOf(std::span<const std::byte> bytes) {
  return ExtendCrc32c(0, bytes.data(), bytes.size());
}

Status CheckDevice(Communicator* communicator, const DeviceState& device) {
  if (device.memory.empty()) return OkStatus();
  if (communicator->device_memory() == nullptr) {
    return InvalidArgument(
        "a state lies on a device, and backend {} reduces in the host's "
        "memory: use backend nccl",
        communicator->backend());
  }
  if (device.stream != nullptr) return OkStatus();
  return InvalidArgument(
      "a state lies on a device: name the stream that computes it");
}

// Between a chunk and memory of Allocate.
class ChunkCopier {
 public:
  ChunkCopier(DeviceMemory* device, Stream stream)
      : device_(device), stream_(stream) {}

  Status Read(const Chunk& chunk, void* to) const {
    if (chunk.on_device) {
      return device_->CopyToHost(to, chunk.bytes.data(), chunk.bytes.size(),
                                 stream_);
    }
    std::memcpy(to, chunk.bytes.data(), chunk.bytes.size());
    return OkStatus();
  }
  Status Write(const Chunk& chunk, const void* from) const {
    if (chunk.on_device) {
      return device_->CopyToDevice(chunk.bytes.data(), from, chunk.bytes.size(),
                                   stream_);
    }
    std::memcpy(chunk.bytes.data(), from, chunk.bytes.size());
    return OkStatus();
  }

 private:
  DeviceMemory* const device_;
  const Stream stream_;
};

Status Diverged(const Status& status) { return WithReason(status, "DIVERGED"); }

// "ranks 0, 2"
std::string Named(const std::vector<int>& ranks) {
  return fmt::format("rank{} {}", ranks.size() == 1 ? "" : "s",
                     fmt::join(ranks, ", "));
}

bool Receives(const LevelPlan& plan, int rank) {
  return std::binary_search(plan.receivers.begin(), plan.receivers.end(), rank);
}

// All of Level's communication: one rank's part of it.
class Leveler {
 public:
  Leveler(Communicator* communicator, Duration timeout)
      : communicator_(communicator), timeout_(timeout) {}

  Status Allocate();
  // Every rank's bytes, in rank order. REQUIRES: at most a WireRecord each.
  Status Gather(std::span<const std::byte> own, std::vector<std::byte>* all);
  Status Broadcast(int root, std::span<std::byte> bytes);
  // `bytes` of rank `root`, whatever their number, on every rank.
  Status BroadcastText(int root, std::string* bytes);
  // Sends and receives `chunks` as `plan` says. `crcs` are the first source's.
  // Sets `*written` before it changes a chunk, and `*wrong` where a received
  // one does not match.
  Status Transfer(const LevelPlan& plan, const std::vector<Chunk>& chunks,
                  const ChunkCopier& copier, const std::vector<uint32_t>& crcs,
                  bool* written, bool* wrong);

 private:
  MonoTime Deadline() const { return MonotonicNow() + timeout_; }
  StatusOr<std::unique_ptr<Work>> StartBroadcast(int root, const Buffer* buffer,
                                                 size_t bytes);

  Communicator* const communicator_;
  const Duration timeout_;
  const Buffer* small_ = nullptr;
};

Status Leveler::Allocate() {
  const size_t records =
      sizeof(WireRecord) * static_cast<size_t>(communicator_->size());
  LOCKSTEP_ASSIGN_OR_RETURN(
      small_, communicator_->Allocate(std::max(kSmallStaging, records)));
  return OkStatus();
}

StatusOr<std::unique_ptr<Work>> Leveler::StartBroadcast(int root,
                                                        const Buffer* buffer,
                                                        size_t bytes) {
  Operation operation;
  operation.kind = CollectiveKind::kBroadcast;
  operation.slice = {buffer, 0, bytes, DataType::kUint8};
  operation.root = root;
  return communicator_->Start(operation);
}

Status Leveler::Gather(std::span<const std::byte> own,
                       std::vector<std::byte>* all) {
  const auto ranks = static_cast<size_t>(communicator_->size());
  auto* data = static_cast<std::byte*>(small_->data);
  std::memcpy(data + own.size() * static_cast<size_t>(communicator_->rank()),
              own.data(), own.size());
  Operation operation;
  operation.kind = CollectiveKind::kAllGather;
  operation.slice = {small_, 0, own.size() * ranks, DataType::kUint8};
  LOCKSTEP_RETURN_IF_ERROR(communicator_->RunNow(operation, Deadline()));
  all->assign(data, data + own.size() * ranks);
  return OkStatus();
}

Status Leveler::Broadcast(int root, std::span<std::byte> bytes) {
  for (size_t done = 0; done < bytes.size(); done += kSmallStaging) {
    const std::span<std::byte> piece =
        bytes.subspan(done, std::min(kSmallStaging, bytes.size() - done));
    std::memcpy(small_->data, piece.data(), piece.size());
    LOCKSTEP_ASSIGN_OR_RETURN(const std::unique_ptr<Work> work,
                              StartBroadcast(root, small_, piece.size()));
    LOCKSTEP_RETURN_IF_ERROR(work->Wait(Deadline()));
    std::memcpy(piece.data(), small_->data, piece.size());
  }
  return OkStatus();
}

Status Leveler::BroadcastText(int root, std::string* bytes) {
  uint64_t size = bytes->size();
  LOCKSTEP_RETURN_IF_ERROR(
      Broadcast(root, std::as_writable_bytes(std::span(&size, 1))));
  // All ranks know it now, so none waits for bytes that do not come.
  if (size > kMaxSmall) {
    return InvalidArgument(
        "rank {} brings {} bytes besides the memory of its state: at most {}",
        root, size, kMaxSmall);
  }
  bytes->resize(size);
  return Broadcast(root, std::as_writable_bytes(std::span(*bytes)));
}

Status Leveler::Transfer(const LevelPlan& plan,
                         const std::vector<Chunk>& chunks,
                         const ChunkCopier& copier,
                         const std::vector<uint32_t>& crcs, bool* written,
                         bool* wrong) {
  const int own = communicator_->rank();
  const bool receives = Receives(plan, own);
  // One is filled or emptied while the other travels.
  std::array<const Buffer*, 2> staging = {};
  for (const Buffer*& buffer : staging) {
    LOCKSTEP_ASSIGN_OR_RETURN(buffer, communicator_->Allocate(kLevelChunk));
  }
  const auto root_of = [&](size_t i) {
    return plan.sources[i % plan.sources.size()];
  };
  std::unique_ptr<Work> before;  // Of chunk i - 1.
  for (size_t i = 0; i <= chunks.size(); ++i) {
    std::unique_ptr<Work> work;
    if (i < chunks.size()) {
      const Buffer* const buffer = staging[i % 2];
      if (root_of(i) == own) {
        LOCKSTEP_RETURN_IF_ERROR(copier.Read(chunks[i], buffer->data));
      }
      LOCKSTEP_ASSIGN_OR_RETURN(
          work, StartBroadcast(root_of(i), buffer, chunks[i].bytes.size()));
    }
    if (before) {
      LOCKSTEP_RETURN_IF_ERROR(before->Wait(Deadline()));
      if (receives) {
        const Chunk& chunk = chunks[i - 1];
        const auto* const received =
            static_cast<const std::byte*>(staging[(i - 1) % 2]->data);
        *written = true;
        LOCKSTEP_RETURN_IF_ERROR(copier.Write(chunk, received));
        *wrong = *wrong || CrcOf({received, chunk.bytes.size()}) != crcs[i - 1];
      }
    }
    before = std::move(work);
  }
  return OkStatus();
}

StatusOr<LevelPlan> Agree(Leveler* leveler, const LevelInput& input) {
  const WireRecord own =
      ToWire(input.record, LayoutOf(input.memory, input.device.memory));
  std::vector<std::byte> bytes;
  LOCKSTEP_RETURN_IF_ERROR(
      leveler->Gather(std::as_bytes(std::span(&own, 1)), &bytes));
  std::vector<LevelRecord> records;
  for (size_t at = 0; at < bytes.size(); at += sizeof(WireRecord)) {
    WireRecord wire;
    std::memcpy(&wire, bytes.data() + at, sizeof(wire));
    if (wire.layout != own.layout) {
      return InvalidArgument(
          "rank {} has a state of other sizes than this one: register the same "
          "memory on all ranks",
          records.size());
    }
    records.push_back(FromWire(wire));
  }
  return PlanLevel(records);
}

// Whether all ranks have what they should have.
Status CheckReceived(Leveler* leveler, bool wrong) {
  const std::byte own{static_cast<unsigned char>(wrong ? 1 : 0)};
  std::vector<std::byte> all;
  LOCKSTEP_RETURN_IF_ERROR(leveler->Gather({&own, 1}, &all));
  std::vector<int> ranks;
  for (size_t rank = 0; rank < all.size(); ++rank) {
    if (all[rank] != std::byte{0}) ranks.push_back(static_cast<int>(rank));
  }
  if (ranks.empty()) return OkStatus();
  return WithReason(
      DataLoss("{} received bytes of the state that do not match their "
               "checksum",
               Named(ranks)),
      "LEVEL_CRC");
}

Status Exchange(Leveler* leveler, const LevelPlan& plan,
                const ChunkCopier& copier, LevelInput* input, bool* written) {
  const int source = plan.sources.front();
  const std::vector<Chunk> chunks =
      ChunksOf(input->memory, input->device.memory);
  if (!plan.receivers.empty()) {
    std::vector<uint32_t> crcs = std::move(input->digest.chunks);
    crcs.resize(chunks.size());
    LOCKSTEP_RETURN_IF_ERROR(
        leveler->Broadcast(source, std::as_writable_bytes(std::span(crcs))));
    bool wrong = false;
    LOCKSTEP_RETURN_IF_ERROR(
        leveler->Transfer(plan, chunks, copier, crcs, written, &wrong));
    LOCKSTEP_RETURN_IF_ERROR(CheckReceived(leveler, wrong));
  }
  return leveler->BroadcastText(source, &input->small);
}

}  // namespace

StateDigest DigestOf(const StateMemory& memory) {
  StateDigest digest;
  digest.hash = LayoutOf(memory, {});
  for (const Chunk& chunk : ChunksOf(memory, {})) {
    digest.chunks.push_back(CrcOf(chunk.bytes));
    digest.hash = Mix(digest.hash, digest.chunks.back());
  }
  return digest;
}

StatusOr<StateDigest> DigestOf(Communicator* communicator,
                               const StateMemory& memory,
                               const DeviceState& device) {
  if (device.memory.empty()) return DigestOf(memory);
  LOCKSTEP_RETURN_IF_ERROR(CheckDevice(communicator, device));
  LOCKSTEP_ASSIGN_OR_RETURN(const Buffer* const staging,
                            communicator->Allocate(kLevelChunk));
  const ChunkCopier copier(communicator->device_memory(), device.stream);
  StateDigest digest;
  digest.hash = LayoutOf(memory, device.memory);
  for (const Chunk& chunk : ChunksOf(memory, device.memory)) {
    std::span<const std::byte> bytes = chunk.bytes;
    if (chunk.on_device) {
      LOCKSTEP_RETURN_IF_ERROR(copier.Read(chunk, staging->data));
      bytes = {static_cast<const std::byte*>(staging->data), bytes.size()};
    }
    digest.chunks.push_back(CrcOf(bytes));
    digest.hash = Mix(digest.hash, digest.chunks.back());
  }
  return digest;
}

StatusOr<LevelPlan> PlanLevel(std::span<const LevelRecord> records) {
  LevelPlan plan;
  plan.step = -1;
  for (const LevelRecord& record : records) {
    if (record.has_state) plan.step = std::max(plan.step, record.committed);
    plan.redo_checkpoint = plan.redo_checkpoint || record.in_flight;
  }
  if (plan.step < 0) {
    return WithReason(
        FailedPrecondition("none of {} ranks has a state to go on from",
                           records.size()),
        "NO_STATE");
  }
  std::vector<int> others;  // At the step, with another state than the first.
  std::vector<int> behind;  // By more than a step.
  std::optional<uint64_t> digest;
  for (size_t i = 0; i < records.size(); ++i) {
    const LevelRecord& record = records[i];
    const int rank = static_cast<int>(i);
    if (!record.has_state || record.committed < plan.step) {
      if (record.has_state && record.committed < plan.step - 1) {
        behind.push_back(rank);
      }
      plan.receivers.push_back(rank);
      continue;
    }
    if (!digest) digest = record.digest;
    if (record.digest != *digest) others.push_back(rank);
    plan.sources.push_back(rank);
  }
  if (!others.empty()) {
    return Diverged(FailedPrecondition(
        "after step {} the state of {} differs from that of rank {}", plan.step,
        Named(others), plan.sources.front()));
  }
  if (!behind.empty()) {
    return Diverged(FailedPrecondition(
        "rank {} has {} steps, and {} lacks more than one of them",
        plan.sources.front(), plan.step, Named(behind)));
  }
  std::stable_partition(
      plan.sources.begin(), plan.sources.end(),
      [&](int rank) { return records[static_cast<size_t>(rank)].learned; });
  return plan;
}

StatusOr<LevelResult> Level(Communicator* communicator, LevelInput input,
                            Duration operation_timeout, bool* written) {
  const MonoTime began = MonotonicNow();
  LOCKSTEP_RETURN_IF_ERROR(CheckDevice(communicator, input.device));
  Leveler leveler(communicator, operation_timeout);
  LOCKSTEP_RETURN_IF_ERROR(leveler.Allocate());
  LevelResult result;
  LOCKSTEP_ASSIGN_OR_RETURN(result.plan, Agree(&leveler, input));
  const ChunkCopier copier(communicator->device_memory(), input.device.stream);
  bool ignored = false;
  LOCKSTEP_RETURN_IF_ERROR(Exchange(&leveler, result.plan, copier, &input,
                                    written != nullptr ? written : &ignored));
  result.small = std::move(input.small);
  if (!result.plan.receivers.empty()) {
    for (const StateMemory* parts : {&input.memory, &input.device.memory}) {
      for (const auto& part : *parts) {
        result.bytes += static_cast<int64_t>(part.size());
      }
    }
  }
  result.time = MonotonicNow() - began;
  return result;
}

}  // namespace lockstep::worker::collective
