// Fetching ahead for jobs that wait.
#include <system_error>
#include <utility>

#include "common/base/logging.h"
#include "worker/agent/agent.h"
#include "worker/agent/core/printable_text.h"

namespace lockstep {
namespace {

constexpr Duration kMostTime = std::chrono::minutes(30);
// A gang that gets ready goes first; how soon to look whether it has.
constexpr Duration kYield = std::chrono::seconds(1);

}  // namespace

void Agent::OnPrefetch(const Prefetch& wanted) {
  const MonoTime now = loop_->Now().mono;
  ahead_.Want(wanted, now);
  std::erase_if(ahead_leases_,
                [&](const auto& entry) { return !ahead_.Wants(entry.first); });
  // Always: a coordinator that was started anew knows nothing.
  ReportAhead();
  FetchAhead();
}

void Agent::FetchAhead() {
  const MonoTime now = loop_->Now().mono;
  for (AheadFetch* slot : {&image_ahead_, &package_ahead_}) {
    if (!slot->key.empty() && ahead_.IsUnwanted(slot->key, now)) {
      slot->cancel->Cancel();
    }
  }
  loop_->CancelTimer(ahead_timer_);
  std::optional<MonoTime> next = ahead_.NextDeadline();
  if (next && *next <= now && !preparing_.empty()) {
    next = now + kYield;
  } else if (preparing_.empty()) {
    if (image_ahead_.key.empty() && engine_ != nullptr) {
      if (const auto image = ahead_.BeginImage(now)) FetchImageAhead(*image);
    }
    if (package_ahead_.key.empty() && config_.packages != nullptr) {
      if (const auto package = ahead_.BeginPackage(now)) {
        FetchPackageAhead(*package);
      }
    }
    next = ahead_.NextDeadline();
    // What waits for the end of another fetch comes with that.
    if (next) next = std::max(*next, now + kYield);
  }
  if (!next) return;
  ahead_timer_ = loop_->At(*next, [this, alive = alive_] {
    if (*alive) FetchAhead();
  });
}

Status Agent::RoomAhead() const {
  const auto space = config_.disk_space(config_.dir);
  // Then the fetch itself says what is wrong.
  if (!space.ok()) return OkStatus();
  if (space->free > BytesOf(config_.disk_floor, space->size)) {
    return OkStatus();
  }
  return ResourceExhausted("the disk of the worker has only {} left",
                           FormatBytes(space->free));
}

void Agent::RunAhead(AheadFetch* slot, const std::string& key,
                     std::function<PrefetchCore::Result(Cancellation*)> fetch) {
  slot->key = key;
  slot->cancel = std::make_shared<Cancellation>();
  const auto run = [this, slot, key, fetch = std::move(fetch),
                    cancel = slot->cancel, alive = alive_] {
    const MonoTime begun = MonotonicNow();
    auto result = std::make_shared<PrefetchCore::Result>(fetch(cancel.get()));
    result->duration = MonotonicNow() - begun;
    loop_->Post([this, slot, key, result, alive] {
      if (*alive) OnAheadDone(slot, key, std::move(*result));
    });
  };
  try {
    slot->thread = config_.start_thread(run);
  } catch (const std::system_error& error) {
    PrefetchCore::Result result;
    result.status =
        Unavailable("the worker cannot start a thread: {}", error.what());
    slot->key.clear();
    ahead_.OnDone(key, std::move(result), loop_->Now().mono);
    ReportAhead();
  }
}

void Agent::OnAheadDone(AheadFetch* slot, const std::string& key,
                        PrefetchCore::Result result) {
  if (slot->thread.joinable()) slot->thread.join();
  slot->key.clear();
  if (!result.status.ok()) {
    // Programs and names of others speak in it.
    result.status =
        Status(result.status.code(),
               PrintableText(Message(result.status), kMaxReportedText));
    LOG_WARN("not fetched ahead: {}", Message(result.status));
  }
  ahead_.OnDone(key, std::move(result), loop_->Now().mono);
  if (!ahead_.Wants(key)) ahead_leases_.erase(key);
  ReportAhead();
  FetchAhead();
}

void Agent::FetchImageAhead(const ImageContent& wanted) {
  const Status room = RoomAhead();
  RunAhead(&image_ahead_, PrefetchCore::KeyOf(wanted),
           [this, wanted, room, engine = engine_](Cancellation* cancel) {
             PrefetchCore::Result result;
             result.status = room;
             if (!room.ok()) return result;
             auto here = images_->Get(
                 engine, wanted, MonotonicNow() + kMostTime,
                 [cancel](const std::string&) { return !cancel->cancelled(); });
             result.status = here.status();
             if (!here.ok()) return result;
             result.content = std::move(here->content);
             result.fetched = here->fetched;
             return result;
           });
}

void Agent::FetchPackageAhead(const Package& wanted) {
  const Status room = RoomAhead();
  RunAhead(&package_ahead_, PrefetchCore::KeyOf(wanted),
           [this, wanted, room, alive = alive_](Cancellation* cancel) {
             PrefetchCore::Result result;
             result.status = room;
             if (!room.ok()) return result;
             auto lease = config_.packages->Get(
                 wanted, [&](int64_t) { result.fetched = true; }, cancel);
             result.status = lease.status();
             if (!lease.ok()) return result;
             auto kept =
                 std::make_shared<PackageCache::Lease>(*std::move(lease));
             // Before the end of the fetch is told.
             loop_->Post([this, kept, digest = wanted.digest, alive] {
               if (*alive) ahead_leases_[digest] = std::move(*kept);
             });
             return result;
           });
}

void Agent::ReportAhead() {
  if (!welcomed_) return;
  v1::WorkerMessage message;
  *message.mutable_prefetch_status() = ToProto(PrefetchReport{ahead_.Report()});
  Send(message);
}

}  // namespace lockstep
