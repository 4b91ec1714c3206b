#include "worker/trainer/restore.h"

#include <cstring>
#include <utility>
#include <vector>

#include "common/base/logging.h"
#include "worker/checkpoint/reader.h"
#include "worker/checkpoint/resume.h"
#include "worker/runtime/gradients.h"

namespace lockstep::worker::trainer {
namespace {

using checkpoint::Checkpoint;

checkpoint::ResumeRequest RequestOf(const runtime::Session& session) {
  checkpoint::ResumeRequest request;
  request.job = session.identity().job;
  request.generation = session.identity().generation;
  for (const runtime::SessionLineage& entry : session.identity().lineage) {
    request.lineage.push_back({entry.generation, entry.start_step});
  }
  const runtime::SessionResume& resume = session.identity().resume;
  if (resume.known_generation > 0) {
    request.known = {resume.known_generation, resume.known_step};
  }
  if (resume.restore_step > 0) request.restore_step = resume.restore_step;
  request.from_start = resume.from_start;
  return request;
}

void Report(runtime::Session* session, const std::string& sentence,
            runtime::EventKind kind = runtime::EventKind::kOther) {
  LOG_WARN("{}", sentence);
  session->ReportEvent(sentence, kind);
}

// Rank 0's part: the path of the checkpoint to go on from, or nothing.
StatusOr<std::string> Find(FileSystem* fs, runtime::Session* session,
                           const std::string& root) {
  LOCKSTEP_ASSIGN_OR_RETURN(
      const checkpoint::ResumeResult found,
      checkpoint::FindResume(fs, root, RequestOf(*session)));
  for (const std::string& name : found.strangers) {
    Report(session, fmt::format("files from before this job are now in {}/{}",
                                root, name));
  }
  for (const checkpoint::Damaged& damaged : found.damaged) {
    Report(
        session,
        fmt::format("checkpoint {} is damaged ({}) and {}; using an older one",
                    damaged.name, damaged.reason,
                    damaged.kept_as.empty() ? "cannot be moved"
                                            : "is now at " + damaged.kept_as),
        runtime::EventKind::kCheckpointDamaged);
  }
  return found.from ? found.from->path() : std::string();
}

Status CheckFacts(const Checkpoint& saved,
                  const std::map<std::string, std::string>& facts) {
  for (const auto& [name, value] : facts) {
    const auto it = saved.manifest().metadata.find(name);
    if (it == saved.manifest().metadata.end() || it->second == value) continue;
    return FailedPrecondition(
        "{} was saved with {} '{}', but this run has '{}'", saved.path(), name,
        it->second, value);
  }
  return OkStatus();
}

StatusOr<Restored> Load(FileSystem* fs, const runtime::Session& session,
                        const std::string& path,
                        const std::map<std::string, std::string>& facts,
                        Replica* replica, Optimizer* optimizer,
                        bool random_numbers) {
  LOCKSTEP_ASSIGN_OR_RETURN(const Checkpoint saved, Checkpoint::Open(fs, path));
  LOCKSTEP_RETURN_IF_ERROR(CheckFacts(saved, facts));
  LOCKSTEP_ASSIGN_OR_RETURN(const checkpoint::Shard state, saved.ReadShard(0));
  LOCKSTEP_RETURN_IF_ERROR(
      Annotate(LoadState(state, StateTensors(*replica, optimizer)), path));

  Restored restored;
  restored.from = saved.manifest().key();
  const std::optional<std::string_view> progress = state.Blob("progress");
  if (!progress) return DataLoss("{} has no training progress", path);
  LOCKSTEP_ASSIGN_OR_RETURN(restored.progress, DecodeTrainProgress(*progress));

  if (const auto order = state.Blob("gradient-order")) {
    LOCKSTEP_ASSIGN_OR_RETURN(restored.gradient_order,
                              runtime::ParseOrder(*order));
  }

  const auto rank = static_cast<uint32_t>(session.rank());
  if (!random_numbers || rank >= saved.manifest().world_size) return restored;
  LOCKSTEP_ASSIGN_OR_RETURN(const checkpoint::Shard own, saved.ReadShard(rank));
  if (const std::optional<std::string_view> rng = own.Blob("rng")) {
    LOCKSTEP_RETURN_IF_ERROR(replica->RestoreRng(*rng));
  }
  return restored;
}

// Replicas that begin different would stay different.
Status CompareReplicas(runtime::Session* session, const Replica& replica,
                       Optimizer* optimizer) {
  const uint64_t hash = checkpoint::StateHash(StateTensors(replica, optimizer));
  std::string bytes(sizeof(hash), '\0');
  std::memcpy(bytes.data(), &hash, sizeof(hash));
  std::string of_chief = bytes;
  LOCKSTEP_RETURN_IF_ERROR(session->Broadcast(&of_chief));
  if (of_chief == bytes) return OkStatus();
  return WithReason(
      FailedPrecondition("rank {} starts with other parameters than rank 0",
                         session->rank()),
      "DIVERGED");
}

}  // namespace

StatusOr<Restored> Restore(FileSystem* fs, runtime::Session* session,
                           const std::string& root,
                           const std::map<std::string, std::string>& facts,
                           Replica* replica, Optimizer* optimizer,
                           bool random_numbers) {
  std::string path;
  if (session->chief() && !root.empty()) {
    LOCKSTEP_ASSIGN_OR_RETURN(path, Find(fs, session, root));
  }
  LOCKSTEP_RETURN_IF_ERROR(session->Broadcast(&path));
  Restored restored;
  if (!path.empty()) {
    LOCKSTEP_ASSIGN_OR_RETURN(restored, Load(fs, *session, path, facts, replica,
                                             optimizer, random_numbers));
  }
  LOCKSTEP_RETURN_IF_ERROR(CompareReplicas(session, *replica, optimizer));
  // Also "from nothing" where there might have been something: what the
  // coordinator takes for the beginning may have been found damaged.
  if (session->chief() && session->identity().generation > 1) {
    session->ReportResumed(restored.progress.step);
  }
  return restored;
}

}  // namespace lockstep::worker::trainer
