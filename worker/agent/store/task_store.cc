#include "worker/agent/store/task_store.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <utility>

#include "common/base/fd.h"
#include "common/base/logging.h"
#include "common/base/random.h"
#include "common/wire/worker_wire.h"
#include "worker/task/bytes.h"

namespace lockstep::worker::agent {
namespace {

constexpr std::string_view kGangMagic = "LSGANG01";
constexpr uint32_t kVersion = 1;
// No job's name begins so.
constexpr size_t kMaxMessage = 8 << 20;

// Reads a file of "N\n"; returns 0 if it does not exist. `remedy` ends the
// error about a damaged file.
StatusOr<uint64_t> LoadNumber(FileSystem* files, const std::string& path,
                              std::string_view remedy) {
  const auto text = files->Read(path, 64);
  if (text.status().code() == StatusCode::kNotFound) return 0;
  if (!text.ok()) return text.status();
  uint64_t number = 0;
  const char* end = text->data() + text->size();
  const auto parsed = std::from_chars(text->data(), end, number);
  if (parsed.ec != std::errc() || parsed.ptr == text->data() ||
      std::string_view(parsed.ptr, end) != "\n" || number == UINT64_MAX) {
    return DataLoss("{} is damaged: {}", path, remedy);
  }
  return number;
}

Status SaveNumber(FileSystem* files, const std::string& path, uint64_t number) {
  return files->WriteAtomic(path, fmt::format("{}\n", number), 0600);
}

// "HISTORY EPOCH VERSION EPOCH_ID\n", or without the id where it is not known.
std::string PointText(const StorePoint& point) {
  return fmt::format("{} {} {}{}{}\n", point.history, point.epoch,
                     point.version, point.epoch_id.empty() ? "" : " ",
                     point.epoch_id);
}

// False: `text` is none.
bool ParsePoint(std::string_view text, StorePoint* point) {
  const size_t space = text.find(' ');
  if (space == std::string_view::npos || !IsHistory(text.substr(0, space))) {
    return false;
  }
  point->history.assign(text.substr(0, space));
  const char* const end = text.data() + text.size();
  const auto epoch =
      std::from_chars(text.data() + space + 1, end, point->epoch);
  if (epoch.ec != std::errc() || epoch.ptr == end || *epoch.ptr != ' ') {
    return false;
  }
  const auto version = std::from_chars(epoch.ptr + 1, end, point->version);
  if (version.ec != std::errc() || point->version < 0) return false;
  std::string_view rest(version.ptr, end);
  if (rest.starts_with(' ')) {
    const std::string_view id = rest.substr(1, kHistoryDigits);
    if (!IsHistory(id)) return false;
    point->epoch_id.assign(id);
    rest.remove_prefix(1 + kHistoryDigits);
  }
  return rest == "\n";
}

}  // namespace

std::string EncodeStoredGang(const StoredGang& gang) {
  task::ByteWriter writer;
  writer.Str(ToProto(gang.assignment).SerializeAsString());
  writer.Str(ToProto(gang.status).SerializeAsString());
  writer.U32(static_cast<uint32_t>(gang.link_nonces.size()));
  for (const auto& [rank, nonce] : gang.link_nonces) {
    writer.I32(rank);
    writer.Str(nonce);
  }
  return task::Seal(kGangMagic, kVersion, writer.Take());
}

StatusOr<StoredGang> DecodeStoredGang(std::string_view bytes) {
  std::string_view payload;
  std::string error;
  if (!task::Unseal("gang", kGangMagic, kVersion, bytes, &payload, &error)) {
    return DataLoss("{}", error);
  }
  task::ByteReader reader(payload);
  v1::Assignment assignment;
  v1::GangStatus status;
  StoredGang gang;
  const bool parsed = assignment.ParseFromString(reader.Str(kMaxMessage)) &&
                      status.ParseFromString(reader.Str(kMaxMessage));
  const uint32_t count = reader.U32();
  for (uint32_t i = 0; reader.ok() && i < count; ++i) {
    const int32_t rank = reader.I32();
    gang.link_nonces[rank] = reader.Str(64);
  }
  if (!parsed || !reader.AtEnd()) {
    return DataLoss("the gang record is truncated or has an extra field");
  }
  auto a = FromProto(assignment);
  auto s = FromProto(status);
  if (!a.ok()) return DataLoss("{}", Message(a.status()));
  if (!s.ok()) return DataLoss("{}", Message(s.status()));
  gang.assignment = *std::move(a);
  gang.status = *std::move(s);
  return gang;
}

TaskStore::TaskStore(FileSystem* files, const std::string& dir)
    : files_(files), dir_(dir), root_(JoinPath(dir, "tasks")) {}

Status TaskStore::Init() {
  LOCKSTEP_RETURN_IF_ERROR(files_->MakeDirs(root_, 0711));
  return files_->SyncDir(dir_);
}

std::string TaskStore::GangDirectory(const GangKey& key) const {
  return JoinPath(root_, fmt::format("{}.g{}", key.job, key.generation));
}

std::string TaskStore::CodeDirectory(const GangKey& key) const {
  return JoinPath(GangDirectory(key), "code");
}

RankPaths TaskStore::PathsOf(const GangKey& key, int32_t rank) const {
  RankPaths paths;
  paths.directory = JoinPath(GangDirectory(key), fmt::format("rank-{}", rank));
  paths.work = JoinPath(paths.directory, "work");
  paths.page = JoinPath(paths.work, ".lockstep-page");
  paths.log = JoinPath(paths.directory, "log");
  paths.task_record = JoinPath(paths.directory, "task.record");
  paths.exit_record = JoinPath(paths.directory, "exit.record");
  paths.shim_errors = JoinPath(paths.directory, "shim.err");
  paths.error_file = JoinPath(paths.work, ".lockstep-error.json");
  paths.lock = JoinPath(paths.directory, "lock");
  paths.processes = JoinPath(paths.directory, "processes");
  paths.link_directory = JoinPath(paths.directory, "link");
  paths.link_file = JoinPath(paths.link_directory, "file");
  return paths;
}

Status TaskStore::MakeRankDirectories(const GangKey& key, int32_t rank,
                                      uid_t uid, gid_t gid) {
  const RankPaths paths = PathsOf(key, rank);
  LOCKSTEP_RETURN_IF_ERROR(files_->MakeDirs(GangDirectory(key), 0711));
  LOCKSTEP_RETURN_IF_ERROR(files_->MakeDirs(paths.directory, 0711));
  LOCKSTEP_RETURN_IF_ERROR(files_->MakeDirs(paths.work, 0755));
  if (uid != geteuid() && chown(paths.work.c_str(), uid, gid) != 0) {
    return ErrnoStatus(errno, "giving " + paths.work + " to the task's user");
  }
  return OkStatus();
}

Status TaskStore::WriteLinkFile(const GangKey& key, int32_t rank,
                                const std::string& text, uid_t uid, gid_t gid) {
  const RankPaths paths = PathsOf(key, rank);
  const std::string& path = paths.link_file;
  LOCKSTEP_RETURN_IF_ERROR(files_->MakeDirs(paths.link_directory, 0711));
  // Of an earlier start.
  if (unlink(path.c_str()) != 0 && errno != ENOENT) {
    return ErrnoStatus(errno, "removing " + path);
  }
  const Fd fd(
      open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0400));
  if (!fd) return ErrnoStatus(errno, "making " + path);
  if (uid != geteuid() && fchown(fd.get(), uid, gid) != 0) {
    return ErrnoStatus(errno, "giving " + path + " to the task's user");
  }
  const ssize_t written = write(fd.get(), text.data(), text.size());
  if (written == static_cast<ssize_t>(text.size())) return OkStatus();
  return ErrnoStatus(written < 0 ? errno : ENOSPC, "writing " + path);
}

Status TaskStore::Save(const StoredGang& gang) {
  const GangKey key{gang.assignment.job, gang.assignment.generation};
  const std::string directory = GangDirectory(key);
  LOCKSTEP_RETURN_IF_ERROR(files_->MakeDirs(directory, 0711));
  // It holds the job's key.
  LOCKSTEP_RETURN_IF_ERROR(files_->WriteAtomic(JoinPath(directory, "gang"),
                                               EncodeStoredGang(gang), 0600));
  if (durable_.contains(directory)) return OkStatus();
  LOCKSTEP_RETURN_IF_ERROR(files_->SyncDir(root_));
  durable_.insert(directory);
  return OkStatus();
}

StatusOr<std::string> TaskStore::SetAside(const std::string& directory) {
  const std::string aside = JoinPath(root_, kAsidePrefix + RandomHex(8));
  LOCKSTEP_RETURN_IF_ERROR(files_->Rename(directory, aside));
  durable_.erase(directory);
  return aside;
}

StatusOr<TaskStore::Found> TaskStore::LoadAll() {
  Found found;
  LOCKSTEP_ASSIGN_OR_RETURN(const std::vector<std::string> names,
                            files_->List(root_));
  for (const std::string& name : names) {
    const std::string directory = JoinPath(root_, name);
    if (name.starts_with(kAsidePrefix)) {
      found.aside.push_back(directory);
      continue;
    }
    const auto bytes = files_->Read(JoinPath(directory, "gang"), 32 << 20);
    auto gang = bytes.ok() ? DecodeStoredGang(*bytes)
                           : StatusOr<StoredGang>(bytes.status());
    // A manually renamed directory does not match its record.
    if (gang.ok() &&
        GangDirectory({gang->assignment.job, gang->assignment.generation}) ==
            directory) {
      found.gangs.push_back(*std::move(gang));
    } else {
      found.damaged.push_back(directory);
    }
  }
  return found;
}

StatusOr<uint64_t> NextIncarnation(FileSystem* files, const std::string& dir) {
  LOCKSTEP_ASSIGN_OR_RETURN(
      const uint64_t counter,
      LoadNumber(files, JoinPath(dir, "incarnation"),
                 "restore it, or remove it and run `lockstep nodes forget` for "
                 "this node"));
  LOCKSTEP_RETURN_IF_ERROR(
      SaveNumber(files, JoinPath(dir, "incarnation"), counter + 1));
  return counter + 1;
}

int LoadProbePort(FileSystem* files, const std::string& dir) {
  const auto port = LoadNumber(files, JoinPath(dir, "probe-port"), "");
  return port.ok() && *port <= 65535 ? static_cast<int>(*port) : 0;
}

void SaveProbePort(FileSystem* files, const std::string& dir, int port) {
  const Status saved = SaveNumber(files, JoinPath(dir, "probe-port"),
                                  static_cast<uint64_t>(port));
  if (!saved.ok()) LOG_WARN("{}", Message(saved));
}

StatusOr<StorePoint> LoadObeyed(FileSystem* files, const std::string& dir) {
  constexpr std::string_view kRemedy =
      "restore it, or remove it if the running coordinator is the right one";
  const std::string path = JoinPath(dir, "obeyed");
  const auto text = files->Read(path, 256);
  if (text.status().code() == StatusCode::kNotFound) {
    LOCKSTEP_ASSIGN_OR_RETURN(
        const uint64_t epoch,
        LoadNumber(files, JoinPath(dir, "epoch"), kRemedy));
    StorePoint before_histories;
    before_histories.epoch = epoch;
    return before_histories;
  }
  if (!text.ok()) return text.status();
  StorePoint obeyed;
  if (!ParsePoint(*text, &obeyed)) {
    return DataLoss("{} is damaged: {}", path, kRemedy);
  }
  const auto noted = files->Read(JoinPath(dir, "obeyed-version"), 256);
  if (StorePoint newer; noted.ok() && ParsePoint(*noted, &newer) &&
                        newer.history == obeyed.history &&
                        newer.epoch == obeyed.epoch) {
    obeyed.version = std::max(obeyed.version, newer.version);
  }
  return obeyed;
}

Status SaveObeyed(FileSystem* files, const std::string& dir,
                  const StorePoint& point) {
  if (point.history.empty()) {
    return SaveNumber(files, JoinPath(dir, "epoch"), point.epoch);
  }
  LOCKSTEP_RETURN_IF_ERROR(
      files->WriteAtomic(JoinPath(dir, "obeyed"), PointText(point), 0600));
  return files->RemoveAll(JoinPath(dir, "epoch"));
}

Status NoteObeyedVersion(FileSystem* files, const std::string& dir,
                         const StorePoint& point) {
  const std::string path = JoinPath(dir, "obeyed-version");
  const std::string part = path + ".tmp";
  {
    LOCKSTEP_ASSIGN_OR_RETURN(auto file, files->Create(part, 0600));
    LOCKSTEP_RETURN_IF_ERROR(file->Append(PointText(point)));
    LOCKSTEP_RETURN_IF_ERROR(file->Close());
  }
  return files->Rename(part, path);
}

}  // namespace lockstep::worker::agent
