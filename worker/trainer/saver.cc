#include "worker/trainer/saver.h"

#include <utility>

#include "common/base/fault_point.h"
#include "common/base/logging.h"

namespace lockstep::worker::trainer {
namespace {

using checkpoint::AsyncWriter;
using task::CheckpointPhase;

// Shorter than the timeout of a reduction, so votes end before the other ranks
// stop waiting.
constexpr Duration kWriteDeadline = std::chrono::minutes(4);
// How long a due checkpoint waits for the one before to be published.
constexpr Duration kPublishPatience = std::chrono::seconds(30);
// For a write that is given up because the rank ends: its peers wait for it.
constexpr Duration kShutdownGrace = std::chrono::seconds(2);
constexpr Duration kTurn = std::chrono::seconds(1);

AsyncWriter::Options WriterOptions(const runtime::Session& session,
                                   const SaverOptions& options) {
  // Both live as long as the process, as a hanging write may.
  static const SystemClock* const clock = new SystemClock;
  AsyncWriter::Options writer;
  writer.fs = RealFileSystem();
  writer.clock = clock;
  writer.root = options.root;
  writer.job = session.identity().job;
  writer.generation = session.identity().generation;
  writer.rank = options.elastic ? 0 : static_cast<uint32_t>(session.rank());
  writer.world_size =
      options.elastic ? 1 : static_cast<uint32_t>(session.world_size());
  for (const runtime::SessionLineage& entry : session.identity().lineage) {
    writer.lineage.push_back({entry.generation, entry.start_step});
  }
  // Uses the actual start step instead of the coordinator's expectation.
  if (writer.lineage.empty() ||
      writer.lineage.back().generation != session.identity().generation) {
    writer.lineage.push_back({session.identity().generation, 0});
  }
  writer.lineage.back().start_step = options.start_step;
  writer.metadata = options.metadata;
  writer.retention.keep_last = session.identity().checkpoint_keep;
  writer.restored = options.restored;
  writer.deadline = kWriteDeadline;
  writer.shutdown_grace = kShutdownGrace;
  return writer;
}

}  // namespace

Saver::Saver(runtime::Session* session, runtime::Reducer* reducer,
             const SaverOptions& options)
    : session_(session),
      reducer_(reducer),
      options_(options),
      complete_step_(options.restored ? options.restored->step : -1) {
  FollowChief();
}

void Saver::FollowChief() {
  if (options_.root.empty()) return;
  if (writes()) {
    // One that was the chief before goes on with its writer.
    if (writer_) return;
    writer_ = std::make_unique<AsyncWriter>(WriterOptions(*session_, options_));
  } else if (writer_ && !publishing_) {
    writer_->Abandon(Aborted("another rank saves now"));
    failure_ = OkStatus();
  }
}

Status Saver::Resume(const runtime::StepOrders& orders, int64_t complete_step,
                     const StateFunction& state) {
  // First, as it is about what the former chief writes.
  if (orders.settled) Settled(*orders.settled);
  // Only some ranks may have had that in flight; this is the same on all.
  complete_step_ = complete_step;
  FollowChief();
  if (orders.checkpoint) return Begin(*orders.checkpoint, state);
  return OkStatus();
}

void Saver::Report(const std::string& sentence) {
  LOG_WARN("rank {}: {}", session_->rank(), sentence);
  session_->ReportEvent(sentence);
}

void Saver::TakeSettled(runtime::StepOrders* orders) {
  if (orders->settled) Settled(*orders->settled);
  orders->settled.reset();
}

Status Saver::Obey(const runtime::StepOrders& orders,
                   const StateFunction& state) {
  if (orders.settled) Settled(*orders.settled);
  if (orders.checkpoint) return Begin(*orders.checkpoint, state);
  return OkStatus();
}

Status Saver::Begin(const runtime::CheckpointOrder& order,
                    const StateFunction& state) {
  failure_ = OkStatus();
  if (!writes() && !options_.root.empty()) {
    return reducer_->Vote(order.id, true);
  }
  session_->Enter(runtime::Phase::kCheckpoint);
  const Status started = Start(order, state);
  session_->Enter(runtime::Phase::kOther);
  if (started.ok()) return OkStatus();
  failure_ = started;
  session_->progress()->CountCheckpointFailure();
  Report(Message(Annotate(
      started,
      fmt::format("cannot save the checkpoint of step {}", order.step))));
  return reducer_->Vote(order.id, false);
}

Status Saver::Start(const runtime::CheckpointOrder& order,
                    const StateFunction& state) {
  if (!writer_) return FailedPrecondition("there is no output directory");
  // The chief may still publish the one before.
  const MonoTime patience = MonotonicNow() + kPublishPatience;
  while (writer_->in_flight() && MonotonicNow() < patience) {
    if (auto event = writer_->Wait(kTurn)) {
      LOCKSTEP_RETURN_IF_ERROR(Handle(*event));
    }
  }
  // The writer is idle before its last event is taken.
  LOCKSTEP_RETURN_IF_ERROR(Look());
  const MonoTime began = MonotonicNow();
  LOCKSTEP_ASSIGN_OR_RETURN(SavedState saved, state());
  checkpoint::Snapshot snapshot = writer_->NewSnapshot();
  snapshot.Clear();
  if (session_->chief()) {
    LOCKSTEP_RETURN_IF_ERROR(snapshot.Copy(saved.tensors));
    snapshot.AddBlob("progress", EncodeTrainProgress(saved.progress));
    snapshot.AddBlob("gradient-order", std::move(saved.gradient_order));
  }
  if (!saved.rng.empty()) snapshot.AddBlob("rng", std::move(saved.rng));
  AsyncWriter::Request request;
  request.step = order.step;
  request.id = order.id;
  request.cursor = {saved.progress.cursor.epoch,
                    saved.progress.cursor.position};
  request.state_hash = checkpoint::StateHash(saved.tensors);
  if (!session_->reduction_plan().empty()) {
    request.metadata["reduction plan"] = session_->reduction_plan();
  }
  session_->progress()->CountCheckpointTime(CheckpointPhase::kSnapshot,
                                            MonotonicNow() - began);
  LOCKSTEP_RETURN_IF_ERROR(writer_->Begin(request, std::move(snapshot)));
  writing_ = order;
  publishing_ = false;
  return OkStatus();
}

void Saver::Settled(const runtime::CheckpointSettled& settled) {
  if (settled.complete) complete_step_ = settled.order.step;
  // Where the job is elastic, the rank that wrote it, chief or not any more.
  const bool publishes = options_.elastic || session_->chief();
  if (!writer_ || !publishes || writing_.id != settled.order.id) return;
  if (!settled.complete) {
    writer_->Abandon(options_.elastic
                         ? Aborted("a recovery has begun")
                         : Aborted("not every rank has written its shard"));
    return;
  }
  publishing_ = true;
  if (Status status = writer_->PublishWhenAllVoted(); !status.ok()) {
    Report(fmt::format("checkpoint of step {} is lost: {}", settled.order.step,
                       Message(status)));
  }
}

Status Saver::Look() {
  if (!writer_) return OkStatus();
  while (auto event = writer_->Poll()) {
    LOCKSTEP_RETURN_IF_ERROR(Handle(*event));
  }
  return OkStatus();
}

Status Saver::Handle(const AsyncWriter::Event& event) {
  // Of an earlier one, no vote is asked and no directive is done.
  const bool current = writing_.step == event.step;
  const bool asked = current && reducer_->in_flight() &&
                     reducer_->in_flight()->id == writing_.id &&
                     !reducer_->voted();
  switch (event.kind) {
    case AsyncWriter::kVoted:
      session_->progress()->CountCheckpoint(event.step, event.bytes);
      session_->progress()->CountCheckpointTime(CheckpointPhase::kWrite,
                                                event.write);
      session_->progress()->CountCheckpointTime(CheckpointPhase::kFsync,
                                                event.sync);
      if (!asked) return OkStatus();
      LOCKSTEP_RETURN_IF_ERROR(FaultPoint("checkpoint.vote.before"));
      LOCKSTEP_RETURN_IF_ERROR(reducer_->Vote(writing_.id, true));
      return FaultPoint("checkpoint.vote.after");
    case AsyncWriter::kPublished:
      session_->progress()->CountCheckpointTime(CheckpointPhase::kCommit,
                                                event.commit);
      LOCKSTEP_RETURN_IF_ERROR(FaultPoint("checkpoint.report.before"));
      session_->ReportCheckpoint(
          current ? writing_ : runtime::CheckpointOrder{event.step, 0, {}},
          event.path, static_cast<int64_t>(event.bytes));
      LOG_INFO("checkpoint of step {}: {} ({} bytes, {})", event.step,
               event.path, event.bytes, FormatDuration(event.elapsed));
      if (!event.warning.ok()) Report(Message(event.warning));
      return FaultPoint("checkpoint.report.after");
    case AsyncWriter::kFailed:
      session_->progress()->CountCheckpointFailure();
      if (current) failure_ = event.status;
      Report(Message(event.status));
      return asked ? reducer_->Vote(writing_.id, false) : OkStatus();
  }
  return OkStatus();
}

Status Saver::WaitForWriter() {
  if (writer_) {
    if (auto event = writer_->Wait(kTurn)) return Handle(*event);
    session_->Publish();
    if (writer_->in_flight()) return OkStatus();
    LOCKSTEP_RETURN_IF_ERROR(Look());  // It may have ended just now.
  }
  if (!reducer_->in_flight() || reducer_->voted()) return OkStatus();
  return reducer_->Vote(reducer_->in_flight()->id, false);  // Nothing comes.
}

Status Saver::Finish(const StateFunction& state) {
  session_->Enter(runtime::Phase::kCheckpoint);
  while (reducer_->in_flight()) {
    // The writer's deadline ends this.
    while (!reducer_->voted()) {
      LOCKSTEP_RETURN_IF_ERROR(WaitForWriter());
    }
    // It may order the checkpoint that waited for this one.
    LOCKSTEP_ASSIGN_OR_RETURN(const runtime::StepOrders orders,
                              reducer_->Settle());
    LOCKSTEP_RETURN_IF_ERROR(Obey(orders, state));
  }
  while (writer_ && writer_->in_flight()) {
    LOCKSTEP_RETURN_IF_ERROR(WaitForWriter());
  }
  LOCKSTEP_RETURN_IF_ERROR(Look());
  session_->Enter(runtime::Phase::kOther);
  return OkStatus();
}

Status Saver::SaveAgain(const StateFunction& state) {
  LOCKSTEP_ASSIGN_OR_RETURN(const runtime::CheckpointOrder order,
                            reducer_->BeginCheckpoint());
  LOCKSTEP_RETURN_IF_ERROR(Begin(order, state));
  return Finish(state);
}

Status Saver::SaveNow(const StateFunction& state) {
  if (options_.root.empty()) return OkStatus();
  if (complete_step_ != reducer_->committed()) {
    LOCKSTEP_RETURN_IF_ERROR(SaveAgain(state));
  }
  // Also where all parts were written and the chief could not publish them.
  for (;;) {
    LOCKSTEP_ASSIGN_OR_RETURN(const bool again, session_->AwaitSpace(failure_));
    if (!again) return OkStatus();
    LOCKSTEP_RETURN_IF_ERROR(SaveAgain(state));
  }
}

}  // namespace lockstep::worker::trainer
