#include "worker/agent/evidence/kept_evidence.h"

#include <algorithm>
#include <utility>

#include "common/base/logging.h"
#include "common/wire/evidence_wire.h"
#include "worker/task/bytes.h"

namespace lockstep::worker::agent {
namespace {

constexpr std::string_view kKeptMagic = "LSKEPT01";
constexpr uint32_t kKeptVersion = 1;
constexpr size_t kMaxUid = 64;

std::string EncodeKept(const std::string& job_uid,
                       const std::vector<RankEvidence>& ranks,
                       uint64_t largest) {
  task::ByteWriter writer;
  writer.Str(job_uid);
  writer.U32(static_cast<uint32_t>(ranks.size()));
  uint64_t size = 0;
  for (const RankEvidence& rank : ranks) {
    std::string bytes = ToProto(rank).SerializeAsString();
    if (size + bytes.size() > largest) {
      RankEvidence cut;
      cut.rank = rank.rank;
      cut.node = rank.node;
      cut.time = rank.time;
      cut.took = rank.took;
      cut.notes = {fmt::format(
          "what it did is not kept: the ranks of one host have {} bytes",
          largest)};
      bytes = ToProto(cut).SerializeAsString();
    }
    size += bytes.size();
    writer.Str(bytes);
  }
  return task::Seal(kKeptMagic, kKeptVersion, writer.Take());
}

struct KeptFile {
  int64_t time = 0;
  std::string path;
  uint64_t size = 0;
};

}  // namespace

KeptEvidence::KeptEvidence(FileSystem* files, const std::string& dir,
                           const KeptLimits& limits)
    : files_(files), directory_(JoinPath(dir, "evidence")), limits_(limits) {}

std::string KeptEvidence::PathOf(const GangKey& key) const {
  return JoinPath(directory_, fmt::format("{}.g{}", key.job, key.generation));
}

Status KeptEvidence::Write(const GangKey& key, const std::string& job_uid,
                           const std::vector<RankEvidence>& ranks,
                           WallTime now) {
  // Stacks and logs are the owner's: the daemon alone may read them.
  LOCKSTEP_RETURN_IF_ERROR(files_->MakeDirs(directory_, 0700));
  const std::string path = PathOf(key);
  LOCKSTEP_RETURN_IF_ERROR(files_->WriteAtomic(
      path, EncodeKept(job_uid, ranks, limits_.largest), 0600));
  RemoveOld(path, now);
  return OkStatus();
}

void KeptEvidence::RemoveOld(const std::string& keep, WallTime now) const {
  const auto names = files_->List(directory_);
  if (!names.ok()) return;
  std::vector<KeptFile> found;
  for (const std::string& name : *names) {
    const std::string path = JoinPath(directory_, name);
    const auto info = files_->Stat(path);
    if (!info.ok()) continue;
    found.push_back({info->mtime_unix_nanos, path, info->size});
  }
  std::sort(found.begin(), found.end(),
            [&](const KeptFile& a, const KeptFile& b) {
              if ((a.path == keep) != (b.path == keep)) return a.path == keep;
              return a.time > b.time;
            });
  const int64_t oldest = std::chrono::duration_cast<std::chrono::nanoseconds>(
                             (now - limits_.age).time_since_epoch())
                             .count();
  uint64_t bytes = 0;
  for (const KeptFile& file : found) {
    bytes += file.size;
    if (file.path == keep) continue;
    if (file.time >= oldest && bytes <= limits_.bytes) continue;
    if (const Status removed = files_->Remove(file.path); !removed.ok()) {
      LOG_WARN("old evidence stays: {}", Message(removed));
    }
  }
}

StatusOr<std::string> KeptEvidence::JobOf(const std::string& path) const {
  LOCKSTEP_ASSIGN_OR_RETURN(const std::string bytes,
                            files_->Read(path, task::kMaxRecordBytes));
  std::string_view payload;
  std::string error;
  if (!task::Unseal("evidence", kKeptMagic, kKeptVersion, bytes, &payload,
                    &error)) {
    return DataLoss("{}: {}", path, error);
  }
  return std::string(task::ByteReader(payload).Str(kMaxUid));
}

void KeptEvidence::Drop(const std::set<std::string>& job_uids) const {
  const auto names = files_->List(directory_);
  if (!names.ok()) return;
  for (const std::string& name : *names) {
    const std::string path = JoinPath(directory_, name);
    const auto uid = JobOf(path);
    // A damaged file goes by its age.
    if (!uid.ok() || !job_uids.contains(*uid)) continue;
    if (const Status removed = files_->Remove(path); !removed.ok()) {
      LOG_WARN("the evidence of a deleted job stays: {}", Message(removed));
    }
  }
}

StatusOr<std::vector<RankEvidence>> KeptEvidence::Read(
    const GangKey& key, const std::string& job_uid) const {
  const std::string path = PathOf(key);
  const auto bytes = files_->Read(path, task::kMaxRecordBytes);
  const Status none = NotFound("no evidence of {} is kept", Describe(key));
  if (bytes.status().code() == StatusCode::kNotFound) return none;
  if (!bytes.ok()) return bytes.status();
  std::string_view payload;
  std::string error;
  if (!task::Unseal("evidence", kKeptMagic, kKeptVersion, *bytes, &payload,
                    &error)) {
    return DataLoss("{}: {}", path, error);
  }
  task::ByteReader reader(payload);
  if (reader.Str(kMaxUid) != job_uid && reader.ok()) return none;
  const uint32_t count = reader.U32();
  std::vector<RankEvidence> ranks;
  for (uint32_t i = 0; reader.ok() && i < count; ++i) {
    v1::RankEvidence message;
    if (!message.ParseFromString(reader.Str(task::kMaxRecordBytes))) {
      return DataLoss("{}: the record of a rank is damaged", path);
    }
    auto rank = FromProto(message);
    if (!rank.ok()) return DataLoss("{}: {}", path, Message(rank.status()));
    ranks.push_back(*std::move(rank));
  }
  if (!reader.AtEnd()) {
    return DataLoss("{} is truncated or has an extra field", path);
  }
  return ranks;
}

}  // namespace lockstep::worker::agent
