#include "tests/cluster/step_saver.h"

#include <cstring>
#include <utility>

#include "worker/checkpoint/reader.h"
#include "worker/checkpoint/resume.h"

namespace lockstep {
namespace {

namespace checkpoint = worker::checkpoint;

using checkpoint::AsyncWriter;
using worker::runtime::CheckpointOrder;
using worker::runtime::CheckpointSettled;
using worker::runtime::EventKind;
using worker::runtime::Reducer;
using worker::runtime::Session;
using worker::runtime::SessionLineage;
using worker::runtime::SessionResume;
using worker::runtime::StepOrders;

constexpr Duration kTurn = std::chrono::milliseconds(200);

std::vector<checkpoint::LineageEntry> LineageOf(const Session& session) {
  std::vector<checkpoint::LineageEntry> lineage;
  for (const SessionLineage& entry : session.identity().lineage) {
    lineage.push_back({entry.generation, entry.start_step});
  }
  return lineage;
}

// The path of what the job resumes from, or nothing.
StatusOr<std::string> FindPath(Session* session) {
  checkpoint::ResumeRequest request;
  request.job = session->identity().job;
  request.generation = session->identity().generation;
  request.lineage = LineageOf(*session);
  const SessionResume& resume = session->identity().resume;
  if (resume.known_generation > 0) {
    request.known = {resume.known_generation, resume.known_step};
  }
  if (resume.restore_step > 0) request.restore_step = resume.restore_step;
  request.from_start = resume.from_start;
  LOCKSTEP_ASSIGN_OR_RETURN(
      const checkpoint::ResumeResult found,
      checkpoint::FindResume(RealFileSystem(), CheckpointRoot(*session),
                             request));
  for (const checkpoint::Damaged& damaged : found.damaged) {
    session->ReportEvent(fmt::format("checkpoint {} is damaged: {}",
                                     damaged.name, damaged.reason),
                         EventKind::kCheckpointDamaged);
  }
  return found.from ? found.from->path() : std::string();
}

}  // namespace

std::string CheckpointRoot(const Session& session) {
  return JoinPath(session.identity().output_directory, "checkpoints");
}

StatusOr<std::optional<checkpoint::CheckpointKey>> RestoreSteps(
    Session* session, const std::vector<checkpoint::TensorView>& weights) {
  std::optional<checkpoint::CheckpointKey> key;
  if (session->identity().output_directory.empty()) return key;
  std::string path;
  if (session->chief()) {
    LOCKSTEP_ASSIGN_OR_RETURN(path, FindPath(session));
  }
  LOCKSTEP_RETURN_IF_ERROR(session->Broadcast(&path));
  if (!path.empty()) {
    LOCKSTEP_ASSIGN_OR_RETURN(
        const checkpoint::Checkpoint saved,
        checkpoint::Checkpoint::Open(RealFileSystem(), path));
    LOCKSTEP_ASSIGN_OR_RETURN(const checkpoint::Shard shard,
                              saved.ReadShard(0));
    for (const checkpoint::TensorView& to : weights) {
      const checkpoint::TensorView* const from = shard.Find(to.name);
      if (from == nullptr || from->bytes != to.bytes) {
        return DataLoss("{} has no tensor {}", path, to.name);
      }
      std::memcpy(const_cast<void*>(to.data), from->data, to.bytes);
    }
    key = saved.manifest().key();
  }
  if (session->chief() && session->identity().generation > 1) {
    session->ReportResumed(key ? key->step : 0);
  }
  return key;
}

StepSaver::StepSaver(Session* session, Reducer* reducer, int64_t batch,
                     std::optional<checkpoint::CheckpointKey> restored,
                     std::vector<checkpoint::TensorView> weights)
    : session_(session),
      reducer_(reducer),
      batch_(batch),
      weights_(std::move(weights)) {
  if (session->identity().output_directory.empty()) return;
  // Lives as long as the process, as a hanging write may.
  static const SystemClock* const clock = new SystemClock;
  AsyncWriter::Options& options = options_;
  options.fs = RealFileSystem();
  options.clock = clock;
  options.root = CheckpointRoot(*session);
  options.job = session->identity().job;
  options.generation = session->identity().generation;
  options.rank = static_cast<uint32_t>(session->rank());
  options.world_size = static_cast<uint32_t>(session->world_size());
  options.lineage = LineageOf(*session);
  // The coordinator knows where a generation began that this rank joins late.
  if (!options.lineage.empty() && !session->identity().recovering) {
    options.lineage.back().start_step = restored ? restored->step : 0;
  }
  options.retention.keep_last = session->identity().checkpoint_keep;
  options.restored = restored;
  MakeWriter();
}

void StepSaver::MakeWriter() {
  writer_ = std::make_unique<AsyncWriter>(options_);
}

void StepSaver::SetElastic() {
  elastic_ = true;
  options_.rank = 0;
  options_.world_size = 1;
  writer_.reset();
}

Status StepSaver::AfterStep(const StepOrders& orders) {
  if (orders.settled) Settled(*orders.settled);
  if (orders.checkpoint) LOCKSTEP_RETURN_IF_ERROR(Begin(*orders.checkpoint));
  if (!writer_) return OkStatus();
  while (auto event = writer_->Poll()) {
    LOCKSTEP_RETURN_IF_ERROR(Handle(*event));
  }
  return VoteWhenDue();
}

Status StepSaver::VoteFor(uint64_t id) {
  if (vote_delay_ == Duration{} || session_->chief()) {
    return reducer_->Vote(id, true);
  }
  late_vote_ = {id, SystemClock().Now().mono + vote_delay_};
  return OkStatus();
}

Status StepSaver::VoteWhenDue() {
  if (!late_vote_ || SystemClock().Now().mono < late_vote_->due) {
    return OkStatus();
  }
  const uint64_t id = std::exchange(late_vote_, std::nullopt)->id;
  const bool asked = reducer_->in_flight() && !reducer_->voted() &&
                     reducer_->in_flight()->id == id;
  return asked ? reducer_->Vote(id, true) : OkStatus();
}

Status StepSaver::Begin(const CheckpointOrder& order) {
  if (elastic_ && !options_.root.empty()) {
    // Its part is nothing.
    if (!session_->chief()) return reducer_->Vote(order.id, true);
    if (!writer_) MakeWriter();
  }
  if (!writer_) return reducer_->Vote(order.id, false);
  while (writer_->in_flight()) {  // Until its deadline at most.
    if (auto event = writer_->Wait(kTurn)) {
      LOCKSTEP_RETURN_IF_ERROR(Handle(*event));
    }
  }
  // The writer is idle before its last event is taken.
  while (auto event = writer_->Poll()) {
    LOCKSTEP_RETURN_IF_ERROR(Handle(*event));
  }
  checkpoint::Snapshot snapshot = writer_->NewSnapshot();
  if (session_->chief()) {
    LOCKSTEP_RETURN_IF_ERROR(snapshot.Copy(weights_));
  } else {
    snapshot.Clear();
  }
  AsyncWriter::Request request;
  request.step = order.step;
  request.id = order.id;
  request.cursor = {0, static_cast<uint64_t>(order.step * batch_)};
  request.state_hash = checkpoint::StateHash(weights_);
  writing_ = order;
  failure_ = OkStatus();
  return writer_->Begin(request, std::move(snapshot));
}

void StepSaver::Settled(const CheckpointSettled& settled) {
  if (settled.complete) complete_step_ = settled.order.step;
  if (!writer_ || !session_->chief()) return;
  if (!settled.complete) {
    writer_->Abandon(Aborted("a rank failed to write its shard"));
  } else if (Status status = writer_->PublishWhenAllVoted(); !status.ok()) {
    session_->ReportEvent(Message(status));
  }
}

Status StepSaver::Handle(const AsyncWriter::Event& event) {
  const bool current = writing_.step == event.step;
  const bool asked = current && reducer_->in_flight() && !reducer_->voted() &&
                     reducer_->in_flight()->id == writing_.id;
  switch (event.kind) {
    case AsyncWriter::kVoted:
      session_->progress()->CountCheckpoint(event.step, 0);
      return asked ? VoteFor(writing_.id) : OkStatus();
    case AsyncWriter::kPublished:
      session_->ReportCheckpoint(
          current ? writing_ : CheckpointOrder{event.step, 0, {}}, event.path,
          static_cast<int64_t>(event.bytes));
      return OkStatus();
    case AsyncWriter::kFailed:
      session_->progress()->CountCheckpointFailure();
      if (current) failure_ = event.status;
      session_->ReportEvent(Message(event.status));
      return asked ? reducer_->Vote(writing_.id, false) : OkStatus();
  }
  return OkStatus();
}

Status StepSaver::Finish() {
  while (reducer_->in_flight()) {
    while (!reducer_->voted()) {
      if (auto event = writer_->Wait(kTurn)) {
        LOCKSTEP_RETURN_IF_ERROR(Handle(*event));
      }
      LOCKSTEP_RETURN_IF_ERROR(VoteWhenDue());
    }
    // It may order the checkpoint that waited for this one.
    LOCKSTEP_ASSIGN_OR_RETURN(const StepOrders orders, reducer_->Settle());
    LOCKSTEP_RETURN_IF_ERROR(AfterStep(orders));
  }
  while (writer_ && writer_->in_flight()) {
    if (auto event = writer_->Wait(kTurn)) {
      LOCKSTEP_RETURN_IF_ERROR(Handle(*event));
    }
  }
  return writer_ ? AfterStep({}) : OkStatus();
}

Status StepSaver::SaveAgain() {
  LOCKSTEP_ASSIGN_OR_RETURN(const CheckpointOrder order,
                            reducer_->BeginCheckpoint());
  LOCKSTEP_RETURN_IF_ERROR(Begin(order));
  return Finish();
}

Status StepSaver::SaveNow() {
  if (options_.root.empty() || complete_step_ == reducer_->committed()) {
    return OkStatus();
  }
  return SaveAgain();
}

Status StepSaver::AwaitSpace() {
  if (options_.root.empty()) return OkStatus();
  for (;;) {
    // An earlier one that failed was given up.
    const bool last = writing_.step == reducer_->committed();
    LOCKSTEP_ASSIGN_OR_RETURN(
        const bool again, session_->AwaitSpace(last ? failure_ : OkStatus()));
    if (!again) return OkStatus();
    LOCKSTEP_RETURN_IF_ERROR(SaveAgain());
  }
}

}  // namespace lockstep
