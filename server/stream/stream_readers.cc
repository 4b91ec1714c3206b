#include "server/stream/stream_readers.h"

#include <utility>

#include "server/metrics/metric_families.h"

namespace lockstep::server {

StreamReaders::Reader::Reader(StreamReaders* readers,
                              const pki::Identity& caller,
                              std::function<void(const Status&)> end)
    : readers_(readers),
      caller_(FormatIdentity(caller)),
      role_(CallRoleOf(caller)),
      end_(std::move(end)) {
  MutexLock lock(&readers_->mu_);
  at_ = readers_->readers_.insert(readers_->readers_.end(), this);
}

StreamReaders::Reader::~Reader() {
  (void)Keep(0);
  MutexLock lock(&readers_->mu_);
  readers_->readers_.erase(at_);
}

void StreamReaders::Reader::SetWaiting(bool waiting) {
  waiting_since_ = waiting ? MonotonicNow() : MonoTime::max();
}

Status StreamReaders::Reader::Keep(int64_t bytes) {
  if (bytes == kept_) return OkStatus();
  MutexLock lock(&readers_->mu_);
  const ReaderLimits& limits = readers_->limits_;
  const int64_t more = bytes - std::exchange(kept_, bytes);
  int64_t& of_caller = readers_->of_caller_[caller_];
  int64_t& of_role = readers_->of_role_[static_cast<size_t>(role_)];
  of_caller += more;
  of_role += more;
  const int64_t own = of_caller;
  if (own == 0) readers_->of_caller_.erase(caller_);
  if (more <= 0) return OkStatus();
  Status status;
  if (own > limits.caller_bytes) {
    status = ResourceExhausted(
        "{} bytes wait for {}, and the limit of one caller is {}: read "
        "faster, or use fewer streams",
        own, caller_, limits.caller_bytes);
  } else if (of_role > limits.role_bytes && own > limits.caller_share) {
    status = ResourceExhausted(
        "{} bytes wait for slow readers, {} of them for {}: retry in a "
        "while",
        of_role, own, caller_);
  }
  if (status.ok()) return status;
  ++readers_->refused_;
  return WithReason(std::move(status), "READERS_TOO_SLOW");
}

int StreamReaders::EndStalled(MonoTime now) {
  int ended = 0;
  MutexLock lock(&mu_);
  for (Reader* reader : readers_) {
    reader->readers_->mu_.AssertHeld();
    const MonoTime since = reader->waiting_since_;
    if (reader->ended_ || since >= now || now - since < limits_.stall) continue;
    reader->ended_ = true;
    ++stalled_;
    ++ended;
    reader->end_(ResourceExhausted(
        "the reader was idle for {}: resume from the last position",
        FormatDuration(limits_.stall)));
  }
  return ended;
}

std::vector<prometheus::MetricFamily> StreamReaders::Collect() const {
  MetricFamilies out;
  MutexLock lock(&mu_);
  int64_t kept = 0;
  for (const int64_t of_role : of_role_) kept += of_role;
  out.Gauge("lockstep_watch_kept_bytes", "Memory kept for readers of streams.",
            static_cast<double>(kept));
  for (const auto& [why, count] :
       {std::pair("stalled", stalled_), std::pair("memory", refused_)}) {
    out.Counter("lockstep_watch_ended_total",
                "Streams ended because their readers were too slow.",
                static_cast<double>(count), {{"why", why}});
  }
  return out.Take();
}

}  // namespace lockstep::server
