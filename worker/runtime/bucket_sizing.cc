#include "worker/runtime/bucket_sizing.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <vector>

#include "worker/runtime/peer_lost.h"

namespace lockstep::worker::runtime {
namespace {

constexpr size_t kMiB = 1 << 20;
constexpr size_t kMostMiB = 25;
constexpr std::array<size_t, 4> kSizes = {1 << 10, 64 << 10, 512 << 10,
                                          2 << 20};
// The first of a size does not count: pages and buffers are new.
constexpr int kTimes = 4;

struct Timing {
  size_t bytes = 0;
  double seconds = 0;
};

MessageCost Fit(const std::vector<Timing>& timings) {
  MessageCost cost;
  cost.fixed_seconds = timings.front().seconds;
  if (timings.size() < 2) return cost;
  const Timing& a = timings[timings.size() - 2];
  const Timing& b = timings.back();
  cost.seconds_per_byte = std::max(0.0, b.seconds - a.seconds) /
                          static_cast<double>(b.bytes - a.bytes);
  cost.fixed_seconds = std::max(
      cost.fixed_seconds,
      a.seconds - cost.seconds_per_byte * static_cast<double>(a.bytes));
  return cost;
}

// The quickest of some.
StatusOr<double> TimeAllReduce(collective::Communicator* communicator,
                               const collective::Slice& slice,
                               Duration timeout) {
  double quickest = 0;
  for (int i = 0; i < kTimes; ++i) {
    const MonoTime began = MonotonicNow();
    LOCKSTEP_RETURN_IF_ERROR(MarkPeerLost(collective::Run(
        communicator, {collective::CollectiveKind::kAllReduce, slice},
        timeout)));
    const double took = ToSeconds(MonotonicNow() - began);
    if (i == 1 || (i > 1 && took < quickest)) quickest = took;
  }
  return quickest;
}

// Rank 0's.
template <typename T>
Status Agree(SmallCollectives* small, T* value) {
  std::string bytes(sizeof(T), '\0');
  std::memcpy(bytes.data(), value, sizeof(T));
  LOCKSTEP_RETURN_IF_ERROR(small->Broadcast(&bytes));
  std::memcpy(value, bytes.data(), std::min(bytes.size(), sizeof(T)));
  return OkStatus();
}

// "60 us", "0.5 ms", "1.2 s".
std::string FormatSeconds(double seconds) {
  const double scale = seconds < 99.5e-6 ? 1e6 : seconds < 99.5e-3 ? 1e3 : 1;
  const double value = seconds * scale;
  return fmt::format("{:.{}f} {}", value, value < 9.95 ? 1 : 0,
                     scale == 1e6   ? "us"
                     : scale == 1e3 ? "ms"
                                    : "s");
}

}  // namespace

size_t BucketBytesFor(const MessageCost& cost) {
  const double bytes = cost.fixed_seconds * (1 - kFixedShare) /
                       (kFixedShare * cost.seconds_per_byte);
  const double mib = std::ceil(bytes / static_cast<double>(kMiB));
  if (!(mib > 1) || !std::isfinite(mib)) return kMiB;
  return std::min(static_cast<size_t>(std::min(mib, 1e6)), kMostMiB) * kMiB;
}

std::string Describe(const MessageCost& cost) {
  return fmt::format(
      "one message costs {}, a MiB {}", FormatSeconds(cost.fixed_seconds),
      FormatSeconds(cost.seconds_per_byte * static_cast<double>(kMiB)));
}

StatusOr<MessageCost> MeasureMessages(collective::Communicator* communicator,
                                      SmallCollectives* small, Duration budget,
                                      Duration operation_timeout) {
  LOCKSTEP_ASSIGN_OR_RETURN(const collective::Buffer* const buffer,
                            communicator->Allocate(kSizes.back()));
  LOCKSTEP_RETURN_IF_ERROR(small->Barrier());
  const MonoTime end = MonotonicNow() + budget;
  std::vector<Timing> timings;
  for (const size_t bytes : kSizes) {
    if (!timings.empty()) {
      const Timing& last = timings.back();
      // As if time grew with size: it grows less.
      const double next = last.seconds * static_cast<double>(bytes) /
                          static_cast<double>(last.bytes) * kTimes;
      uint8_t on = timings.size() < 2 || MonotonicNow() + Seconds(next) < end;
      LOCKSTEP_RETURN_IF_ERROR(Agree(small, &on));
      if (on == 0) break;
    }
    LOCKSTEP_ASSIGN_OR_RETURN(const double seconds,
                              TimeAllReduce(communicator,
                                            {buffer, 0, bytes / sizeof(float),
                                             collective::DataType::kFloat32},
                                            operation_timeout));
    timings.push_back({bytes, seconds});
  }
  MessageCost cost = Fit(timings);
  LOCKSTEP_RETURN_IF_ERROR(Agree(small, &cost));
  return cost;
}

}  // namespace lockstep::worker::runtime
