#include "worker/checkpoint/async_writer.h"

#include <algorithm>
#include <utility>

#include "common/base/logging.h"
#include "worker/checkpoint/async_writer_shared.h"

namespace lockstep::worker::checkpoint {

void AsyncWriter::Shared::Push(Event event) {
  event.step = flight.request.step;
  event.elapsed = options.clock->Now().mono - flight.begun;
  if (event.kind == AsyncWriter::kVoted) {
    ++counters.voted;
    counters.bytes_written += event.bytes;
  }
  if (event.kind == AsyncWriter::kPublished) ++counters.published;
  if (event.kind == AsyncWriter::kFailed) ++counters.failed;
  events.push_back(std::move(event));
  changed.NotifyAll();
}

void AsyncWriter::Shared::GiveUp(const Status& why) {
  if (phase == kIdle || phase == kGivingUp) return;
  stop_transfer = true;
  // A running thread cleans up when it notices; a waiting one now.
  phase = kGivingUp;
  work = true;
  Event event;
  event.kind = AsyncWriter::kFailed;
  event.status = Annotate(
      why,
      fmt::format("abandoned the checkpoint of step {}", flight.request.step));
  Push(std::move(event));
}

void AsyncWriter::Shared::CheckDeadline() {
  if (phase == kIdle || phase == kGivingUp) return;
  if (options.clock->Now().mono - flight.begun < options.deadline) return;
  GiveUp(DeadlineExceeded("not {} within {}",
                          phase == kWriting ? "written" : "published",
                          FormatDuration(options.deadline)));
}

std::optional<AsyncWriter::Event> AsyncWriter::Shared::Pop() {
  CheckDeadline();
  if (events.empty()) return std::nullopt;
  Event event = std::move(events.front());
  events.pop_front();
  return event;
}

AsyncWriter::AsyncWriter(Options options)
    : shared_(std::make_shared<Shared>(std::move(options))) {
  thread_ = std::thread([shared = shared_] { shared->Run(); });
}

AsyncWriter::~AsyncWriter() {
  bool ended = false;
  {
    MutexLock lock(&shared_->mu);
    shared_->ending = true;
    shared_->GiveUp(Cancelled("the rank is exiting"));
    shared_->changed.NotifyAll();
    const MonoTime deadline = MonotonicNow() + shared_->options.shutdown_grace;
    while (!shared_->ended) {
      if (!shared_->changed.WaitUntil(&shared_->mu, deadline)) break;
    }
    ended = shared_->ended;
  }
  if (ended) {
    thread_.join();
  } else {
    LOG_WARN("job {} g{} rank {}: abandoned a write to {} that hangs",
             shared_->options.job, shared_->options.generation,
             shared_->options.rank, shared_->options.root);
    thread_.detach();
  }
}

Snapshot AsyncWriter::NewSnapshot() {
  MutexLock lock(&shared_->mu);
  return std::exchange(shared_->spare, Snapshot());
}

Status AsyncWriter::Begin(const Request& request, Snapshot snapshot) {
  MutexLock lock(&shared_->mu);
  shared_->CheckDeadline();
  if (shared_->phase != Shared::kIdle) {
    return WithReason(
        Unavailable("cannot begin the checkpoint of step {}: that of step {} "
                    "is in flight",
                    request.step, shared_->flight.request.step),
        "CHECKPOINT_IN_FLIGHT");
  }
  shared_->flight = {request, shared_->options.clock->Now().mono,
                     std::move(snapshot)};
  shared_->stop_transfer = false;
  shared_->phase = Shared::kWriting;
  shared_->work = true;
  ++shared_->counters.begun;
  shared_->changed.NotifyAll();
  return OkStatus();
}

Status AsyncWriter::PublishWhenAllVoted() {
  MutexLock lock(&shared_->mu);
  shared_->CheckDeadline();
  if (shared_->phase != Shared::kVoted) {
    return FailedPrecondition(
        "nothing to publish: rank {} has no unsettled checkpoint with its vote",
        shared_->options.rank);
  }
  shared_->phase = Shared::kPublishing;
  shared_->work = true;
  shared_->changed.NotifyAll();
  return OkStatus();
}

void AsyncWriter::Abandon(const Status& why) {
  MutexLock lock(&shared_->mu);
  shared_->GiveUp(why);
}

std::optional<AsyncWriter::Event> AsyncWriter::Poll() {
  MutexLock lock(&shared_->mu);
  return shared_->Pop();
}

std::optional<AsyncWriter::Event> AsyncWriter::Wait(Duration timeout) {
  const MonoTime until = MonotonicNow() + timeout;
  MutexLock lock(&shared_->mu);
  for (;;) {
    if (auto event = shared_->Pop()) return event;
    // Nothing under way will make an event: don't wait for one.
    if (shared_->phase == Shared::kIdle) return std::nullopt;
    // In short turns, because the deadline follows the injected clock.
    const MonoTime now = MonotonicNow();
    if (now >= until) return std::nullopt;
    shared_->changed.WaitUntil(
        &shared_->mu, std::min(until, now + std::chrono::milliseconds(50)));
  }
}

bool AsyncWriter::in_flight() const {
  MutexLock lock(&shared_->mu);
  return shared_->phase != Shared::kIdle;
}

AsyncWriter::Counters AsyncWriter::counters() const {
  MutexLock lock(&shared_->mu);
  return shared_->counters;
}

}  // namespace lockstep::worker::checkpoint
