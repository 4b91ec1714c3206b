#include "worker/agent/prepare/node_prefetcher.h"

#include <algorithm>
#include <system_error>
#include <utility>

#include "common/base/logging.h"
#include "worker/agent/core/printable_text.h"

namespace lockstep::worker::agent {
namespace {

constexpr Duration kMostTime = std::chrono::minutes(30);
// A gang that gets ready goes first; how soon to look whether it has.
constexpr Duration kYield = std::chrono::seconds(1);

}  // namespace

NodePrefetcher::NodePrefetcher(
    const PrepareOptions* options, std::string dir, EventLoop* loop,
    Containers* containers, std::function<bool()> busy,
    std::function<void(const std::vector<Prefetched>&)> report)
    : options_(options),
      dir_(std::move(dir)),
      loop_(loop),
      containers_(containers),
      busy_(std::move(busy)),
      report_(std::move(report)) {}

NodePrefetcher::~NodePrefetcher() { CancelAll(); }

void NodePrefetcher::CancelAll() {
  for (Fetch* fetch : {&image_, &package_}) {
    if (fetch->cancel != nullptr) fetch->cancel->Cancel();
    if (fetch->thread.joinable()) fetch->thread.join();
  }
}

void NodePrefetcher::Want(const Prefetch& wanted) {
  core_.Want(wanted, loop_->Now().mono);
  std::erase_if(leases_,
                [&](const auto& entry) { return !core_.Wants(entry.first); });
  // Always report, because a restarted coordinator has no state.
  Report();
  FetchNext();
}

void NodePrefetcher::FetchNext() {
  const MonoTime now = loop_->Now().mono;
  for (Fetch* slot : {&image_, &package_}) {
    if (!slot->key.empty() && core_.IsUnwanted(slot->key, now)) {
      slot->cancel->Cancel();
    }
  }
  loop_->CancelTimer(timer_);
  std::optional<MonoTime> next = core_.NextDeadline();
  if (next && *next <= now && busy_()) {
    next = now + kYield;
  } else if (!busy_()) {
    BeginDue(now);
    next = core_.NextDeadline();
    // What waits for the end of another fetch comes with that.
    if (next) next = std::max(*next, now + kYield);
  }
  if (!next) return;
  timer_ = loop_->At(*next, lifetime_.Guard([this] { FetchNext(); }));
}

void NodePrefetcher::BeginDue(MonoTime now) {
  if (image_.key.empty() && containers_->engine() != nullptr) {
    if (const auto image = core_.BeginImage(now)) FetchImage(*image);
  }
  if (package_.key.empty() && options_->packages != nullptr) {
    if (const auto package = core_.BeginPackage(now)) FetchPackage(*package);
  }
}

Status NodePrefetcher::CheckRoom() const {
  const auto space = options_->disk_space(dir_);
  // The fetch itself reports the error.
  if (!space.ok()) return OkStatus();
  if (space->free > BytesOf(options_->disk_floor, space->size)) {
    return OkStatus();
  }
  return ResourceExhausted("the disk of the worker has only {} left",
                           FormatBytes(space->free));
}

void NodePrefetcher::Run(
    Fetch* slot, const std::string& key,
    std::function<PrefetchCore::Result(package::Cancellation*)> fetch) {
  slot->key = key;
  slot->cancel = std::make_shared<package::Cancellation>();
  const auto run = [this, slot, key, fetch = std::move(fetch),
                    cancel = slot->cancel] {
    const MonoTime begun = MonotonicNow();
    auto result = std::make_shared<PrefetchCore::Result>(fetch(cancel.get()));
    result->duration = MonotonicNow() - begun;
    loop_->Post(lifetime_.Guard(
        [this, slot, key, result] { OnDone(slot, key, std::move(*result)); }));
  };
  try {
    slot->thread = options_->start_thread(run);
  } catch (const std::system_error& error) {
    PrefetchCore::Result result;
    result.status =
        Unavailable("the worker cannot start a thread: {}", error.what());
    slot->key.clear();
    core_.OnDone(key, std::move(result), loop_->Now().mono);
    Report();
  }
}

void NodePrefetcher::OnDone(Fetch* slot, const std::string& key,
                            PrefetchCore::Result result) {
  if (slot->thread.joinable()) slot->thread.join();
  slot->key.clear();
  if (!result.status.ok()) {
    // It may quote programs, and names that others chose.
    result.status =
        Status(result.status.code(),
               PrintableText(Message(result.status), kMaxReportedText));
    LOG_WARN("prefetch failed: {}", Message(result.status));
  }
  core_.OnDone(key, std::move(result), loop_->Now().mono);
  if (!core_.Wants(key)) leases_.erase(key);
  Report();
  FetchNext();
}

void NodePrefetcher::FetchImage(const ImageContent& wanted) {
  const Status room = CheckRoom();
  Run(&image_, PrefetchCore::KeyOf(wanted),
      [wanted, room, images = containers_->images(),
       engine = containers_->engine()](package::Cancellation* cancel) {
        PrefetchCore::Result result;
        result.status = room;
        if (!room.ok()) return result;
        auto here = images->Get(
            engine, wanted, MonotonicNow() + kMostTime,
            [cancel](const std::string&) { return !cancel->cancelled(); });
        result.status = here.status();
        if (!here.ok()) return result;
        result.content = std::move(here->content);
        result.fetched = here->fetched;
        return result;
      });
}

void NodePrefetcher::FetchPackage(const Package& wanted) {
  const Status room = CheckRoom();
  Run(&package_, PrefetchCore::KeyOf(wanted),
      [this, wanted, room](package::Cancellation* cancel) {
        PrefetchCore::Result result;
        result.status = room;
        if (!room.ok()) return result;
        auto lease = options_->packages->Get(
            wanted, [&](int64_t) { result.fetched = true; }, cancel);
        result.status = lease.status();
        if (!lease.ok()) return result;
        auto kept =
            std::make_shared<package::PackageCache::Lease>(*std::move(lease));
        // Runs before the report of the fetch.
        loop_->Post(lifetime_.Guard([this, kept, digest = wanted.digest] {
          leases_[digest] = std::move(*kept);
        }));
        return result;
      });
}

void NodePrefetcher::Report() { report_(core_.Report()); }

}  // namespace lockstep::worker::agent
