#include "worker/agent/ranks/supervisor.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <unistd.h>

#include <utility>

#include "common/base/file.h"
#include "common/base/logging.h"
#include "common/os/procfs.h"
#include "worker/agent/core/printable_text.h"
#include "worker/agent/host/dead_sockets.h"
#include "worker/agent/host/orphans.h"
#include "worker/agent/host/stray_processes.h"

namespace lockstep::worker::agent {
namespace {

constexpr Duration kAnswerTime = std::chrono::milliseconds(500);
constexpr Duration kConnectRetry = std::chrono::milliseconds(3);
// A shim listens before it starts its rank: longer than any start takes.
constexpr Duration kConnectTime = std::chrono::seconds(20);

ProcessId ToId(const task::ProcessRef& ref) {
  return {ref.pid, ref.start_time};
}

// Takes the lock of a rank's shim, which the shim holds from before its start
// to its end. Unavailable while another process holds it.
StatusOr<Fd> TakeLock(const std::string& path) {
  Fd fd(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  if (!fd) return ErrnoStatus(errno, "opening " + path);
  if (flock(fd.get(), LOCK_EX | LOCK_NB) != 0) {
    return Unavailable("a shim of this rank is already running: it holds {}",
                       path);
  }
  return fd;
}

// Kills all other processes that have the file `path` open.
void KillHolders(const std::string& path) {
  for (const ProcessStat& process : ReadAllProcesses()) {
    if (process.pid == getpid()) continue;
    const auto held = OpenVerified({process.pid, process.start_time});
    const std::string fds = fmt::format("/proc/{}/fd", process.pid);
    const auto names = RealFileSystem()->List(fds);
    if (!held.ok() || !names.ok()) continue;
    for (const std::string& name : *names) {
      char target[4096];
      const ssize_t size =
          readlink((fds + "/" + name).c_str(), target, sizeof(target));
      if (size > 0 && std::string_view(target, static_cast<size_t>(size)) ==
                          std::string_view(path)) {
        (void)SendSignal(*held, SIGKILL);
        break;
      }
    }
  }
}

}  // namespace

void Supervisor::KillLeftoversOf(const RankPaths& paths,
                                 const task::TaskRecord& record) {
  const auto seen = RealFileSystem()->Read(paths.processes, 1 << 20);
  const Leftovers leftovers =
      KillLeftovers(record, DecodeProcesses(seen.value_or(std::string())));
  stuck_.Add(leftovers.left, record.job, Now().wall);
}

Supervisor::Supervisor(EventLoop* loop, std::string shim_program,
                       std::string boot_id, SupervisorHandler* handler)
    : loop_(loop),
      shim_program_(std::move(shim_program)),
      boot_id_(std::move(boot_id)),
      handler_(handler) {}

Supervisor::~Supervisor() {
  for (auto& [ref, rank] : ranks_) {
    CloseClient(&rank);
    if (rank.shim) loop_->Unwatch(rank.shim->pidfd.get());
  }
}

Supervisor::Rank* Supervisor::Find(const RankRef& ref) {
  const auto it = ranks_.find(ref);
  return it == ranks_.end() ? nullptr : &it->second;
}

std::optional<pid_t> Supervisor::ShimPid(const RankRef& ref) const {
  const auto it = ranks_.find(ref);
  if (it == ranks_.end() || !it->second.shim) return std::nullopt;
  return it->second.shim->id.pid;
}

std::vector<pid_t> Supervisor::ShimPids() const {
  std::vector<pid_t> pids;
  for (const auto& [ref, rank] : ranks_) {
    if (rank.shim) pids.push_back(rank.shim->id.pid);
  }
  return pids;
}

bool Supervisor::IsHeld(const RankRef& ref, const RankPaths& paths) const {
  return ranks_.contains(ref) ||
         TakeLock(paths.lock).status().code() == StatusCode::kUnavailable;
}

StatusOr<Process> Supervisor::Launch(const RankRef& ref,
                                     const task::ShimSpec& spec,
                                     const RankPaths& paths,
                                     const std::vector<int>& held,
                                     std::optional<shim::WarmShim> warm) {
  if (warm) {
    const Status handed = shim::HandOver(*warm, spec, paths.shim_errors, held);
    if (handed.ok()) return std::move(warm->shim);
    LOG_WARN("{}: starts cold: {}", Describe(ref), Message(handed));
    (void)SendSignal(warm->shim, SIGKILL);
    (void)WaitExit(warm->shim, Now().mono);
  }
  return shim::StartShim(shim_program_, spec, paths.shim_errors, held);
}

void Supervisor::Start(const RankRef& ref, const task::ShimSpec& spec,
                       const RankPaths& paths, std::vector<int> held,
                       std::optional<shim::WarmShim> warm) {
  Rank& rank = ranks_[ref];
  rank.paths = paths;
  rank.socket = spec.socket_path;
  rank.nonce = spec.nonce;
  // Ours goes at the end of this: then it is the shim's alone.
  const auto lock = TakeLock(paths.lock);
  if (lock.ok()) held.push_back(lock->get());
  auto shim = lock.ok() ? Launch(ref, spec, paths, held, std::move(warm))
                        : StatusOr<Process>(lock.status());
  if (!shim.ok()) {
    task::ExitRecord record;
    record.kind = task::ExitKind::kNotStarted;
    record.start_errno = EINVAL;
    record.message = Message(shim.status());
    record.end_unix_nanos = ToUnixNanos(Now().wall);
    End(ref, record);
    return;
  }
  Hold(ref, *std::move(shim));
}

void Supervisor::Adopt(const RankRef& ref, const RankPaths& paths) {
  Rank& rank = ranks_[ref];
  rank.paths = paths;
  rank.connect_by = Now().mono + kConnectTime;
  AwaitRecord(ref);
}

void Supervisor::AwaitRecord(const RankRef& ref) {
  Rank* rank = Find(ref);
  if (rank == nullptr || rank->ended || rank->shim) return;
  // Before the records are read: while it is ours no shim can come to be, and
  // what is not there now will never be.
  const auto lock = TakeLock(rank->paths.lock);
  const bool shim_is_there = lock.status().code() == StatusCode::kUnavailable;
  if (const auto record = shim::ReadExitRecord(rank->paths.exit_record);
      record.ok()) {
    End(ref, *record);
    return;
  }
  if (const auto record = shim::ReadTaskRecord(rank->paths.task_record);
      record.ok()) {
    AdoptShim(ref, *record, lock.ok());
    return;
  }
  if (!shim_is_there) {
    EndWithoutRecord(
        ref, rank->kill_when_connected
                 ? "stopped before its start"
                 : "the worker daemon ended before it started this rank");
    return;
  }
  if (Now().mono >= rank->connect_by) {
    LOG_ERROR("{}: killing its shim, which has written no record",
              Describe(ref));
    KillHolders(rank->paths.lock);
    rank->connect_by = Now().mono + kConnectTime;
  }
  loop_->At(Now().mono + kConnectRetry,
            lifetime_.Guard([this, ref] { AwaitRecord(ref); }));
}

void Supervisor::AdoptShim(const RankRef& ref, const task::TaskRecord& record,
                           bool lock_was_free) {
  Rank& rank = *Find(ref);
  if (record.boot_id != boot_id_) {
    EndLost(ref, record, "its host restarted");
    return;
  }
  if (lock_was_free && record.exit_record_path != rank.paths.exit_record &&
      OpenVerified(ToId(record.shim)).ok()) {
    // A live shim holds the lock of its own directory: this one is a copy, and
    // nothing of the first one's is touched.
    EndWithoutRecord(ref, "its shim belongs to " + record.exit_record_path +
                              ", of which this directory is a copy");
    return;
  }
  rank.socket = record.socket_path;
  rank.nonce = record.nonce;
  auto shim = OpenVerified(ToId(record.shim));
  if (shim.ok()) {
    Hold(ref, *std::move(shim));
    return;
  }
  RemoveDeadSocket(rank.socket);
  // It may have written its record since.
  if (const auto late = shim::ReadExitRecord(rank.paths.exit_record);
      late.ok()) {
    End(ref, *late);
    return;
  }
  KillLeftoversOf(rank.paths, record);
  EndLost(ref, record, "its shim is gone");
}

void Supervisor::Hold(const RankRef& ref, Process shim) {
  Rank* rank = Find(ref);
  rank->shim = std::move(shim);
  rank->connect_by = Now().mono + kConnectTime;
  const Status watched =
      loop_->Watch(rank->shim->pidfd.get(), [this, ref] { OnShimEnded(ref); });
  if (!watched.ok()) {
    LOG_ERROR("{}: {}", Describe(ref), Message(watched));
  }
  Connect(ref);
}

void Supervisor::Connect(const RankRef& ref) {
  Rank* rank = Find(ref);
  if (rank == nullptr || rank->ended || rank->client) return;
  auto client =
      shim::ShimClient::Connect(rank->socket, rank->nonce, Now().mono);
  if (client.ok()) {
    rank->client = *std::move(client);
    const Status watched = loop_->Watch(rank->client->fd(),
                                        [this, ref] { OnClientReadable(ref); });
    if (!watched.ok()) LOG_ERROR("{}: {}", Describe(ref), Message(watched));
    if (rank->kill_when_connected) {
      KillTree(ref, *std::exchange(rank->kill_when_connected, std::nullopt));
      rank = Find(ref);
      if (rank == nullptr || !rank->client) return;
    }
    SendFence(ref);
    const task::ShimReply state = rank->client->last();
    OnState(ref, state);
    return;
  }
  if (Now().mono >= rank->connect_by) {
    LOG_ERROR("{}: killing its shim, which does not answer: {}", Describe(ref),
              Message(client.status()));
    if (rank->shim) (void)SendSignal(*rank->shim, SIGKILL);
    return;  // OnShimEnded goes on.
  }
  loop_->At(Now().mono + kConnectRetry,
            lifetime_.Guard([this, ref] { Connect(ref); }));
}

void Supervisor::OnClientReadable(const RankRef& ref) {
  for (;;) {
    Rank* rank = Find(ref);
    if (rank == nullptr || !rank->client) return;
    auto push = rank->client->TakePush();
    if (!push.ok()) {
      // The shim is gone (its pidfd tells) or confused: reconnect while it
      // lives.
      CloseClient(rank);
      rank->connect_by = Now().mono + kConnectTime;
      loop_->At(Now().mono + kConnectRetry,
                lifetime_.Guard([this, ref] { Connect(ref); }));
      return;
    }
    if (!push->has_value()) return;
    OnState(ref, **push);
  }
}

void Supervisor::OnState(const RankRef& ref, const task::ShimReply& state) {
  using Phase = task::ShimReply::Phase;
  Rank* rank = Find(ref);
  if (rank == nullptr || rank->ended) return;
  // While it is stopping, it is unknown whether it ever ran: End decides.
  if (!rank->started && state.phase == Phase::kRunning &&
      state.process.pid > 0) {
    rank->started = true;
    handler_->OnRankStarted(ref, state.process.pid);
  }
  if (state.phase == Phase::kExited) End(ref, state.exit_record);
}

void Supervisor::OnShimEnded(const RankRef& ref) {
  Rank* rank = Find(ref);
  if (rank == nullptr || !rank->shim) return;
  (void)WaitExit(*rank->shim, Now().mono);  // Reaps our own child.
  loop_->Unwatch(rank->shim->pidfd.get());
  rank->shim.reset();
  RemoveDeadSocket(rank->socket);
  if (rank->ended) {
    ranks_.erase(ref);
    return;
  }
  OnClientReadable(ref);  // Reads its exit message.
  rank = Find(ref);
  if (rank == nullptr || rank->ended) {
    ranks_.erase(ref);
    return;
  }
  if (const auto record = shim::ReadExitRecord(rank->paths.exit_record);
      record.ok()) {
    End(ref, *record);
    return;
  }
  const auto record = shim::ReadTaskRecord(rank->paths.task_record);
  std::string why = "its shim (lockstep-shim) ended";
  if (record.ok()) {
    KillLeftoversOf(rank->paths, *record);
    return EndLost(ref, *record, why);
  }
  if (const auto said =
          RealFileSystem()->Read(rank->paths.shim_errors, 64 << 10);
      said.ok() && !said->empty()) {
    why += ": " + PrintableText(*said, 1024);
  }
  EndWithoutRecord(ref, why);
}

void Supervisor::KillTree(const RankRef& ref, Duration grace) {
  Rank* rank = Find(ref);
  if (rank == nullptr || rank->ended) return;
  const bool at_once = grace <= Duration{};
  if (rank->client) {
    const auto answer = rank->client->KillTree(grace, Now().mono + kAnswerTime);
    // Messages before the answer are already read: no event announces them.
    loop_->At(Now().mono,
              lifetime_.Guard([this, ref] { OnClientReadable(ref); }));
    if (!answer.ok()) {
      LOG_WARN("{}: its shim did not accept the stop request: {}",
               Describe(ref), Message(answer.status()));
    } else if (!at_once) {
      return;
    }
  } else {
    rank->kill_when_connected = grace;
  }
  if (!at_once || ++rank->forced < 2 || !rank->shim) return;
  LOG_WARN("{}: killing it with its shim, because it did not end",
           Describe(ref));
  if (const auto record = shim::ReadTaskRecord(rank->paths.task_record);
      record.ok()) {
    KillLeftoversOf(rank->paths, *record);
  }
  (void)SendSignal(*rank->shim, SIGKILL);
}

void Supervisor::Renew(const RankRef& ref, int64_t fence_nanos) {
  Rank* rank = Find(ref);
  if (rank == nullptr || rank->ended) return;
  rank->fence_nanos = fence_nanos;
  if (rank->client) SendFence(ref);
}

void Supervisor::SendFence(const RankRef& ref) {
  Rank* rank = Find(ref);
  if (rank->fence_nanos == 0) return;
  const auto answer =
      rank->client->Fence(rank->fence_nanos, Now().mono + kAnswerTime);
  // Messages before the answer are already read: no event announces them.
  loop_->At(Now().mono,
            lifetime_.Guard([this, ref] { OnClientReadable(ref); }));
  if (!answer.ok()) {
    LOG_WARN("{}: its shim did not take the time until which it may go on: {}",
             Describe(ref), Message(answer.status()));
  }
}

Status Supervisor::StartSession(const RankRef& ref,
                                const task::ShimRequest& request,
                                const std::vector<int>& fds) {
  Rank* rank = Find(ref);
  if (rank == nullptr || rank->ended || !rank->client) {
    return FailedPrecondition("{} does not run here", Describe(ref));
  }
  const auto answer =
      rank->client->StartSession(request, fds, Now().mono + kAnswerTime);
  // Messages before the answer are already read: no event announces them.
  loop_->At(Now().mono,
            lifetime_.Guard([this, ref] { OnClientReadable(ref); }));
  return answer.status();
}

void Supervisor::CloseClient(Rank* rank) {
  if (!rank->client) return;
  loop_->Unwatch(rank->client->fd());
  rank->client.reset();
}

void Supervisor::End(const RankRef& ref, const task::ExitRecord& record) {
  Rank* rank = Find(ref);
  rank->ended = true;
  // It may have ended before it could be seen running.
  if (!rank->started && record.kind != task::ExitKind::kNotStarted &&
      record.process.pid > 0) {
    rank->started = true;
    handler_->OnRankStarted(ref, record.process.pid);
    rank = Find(ref);
    if (rank == nullptr) return;
  }
  // First it is ours, then the shim may go.
  handler_->OnRankExited(ref, record);
  rank = Find(ref);
  if (rank == nullptr) return;
  if (rank->client) (void)rank->client->Forget(Now().mono + kAnswerTime);
  CloseClient(rank);
  if (!rank->shim) ranks_.erase(ref);
}

void Supervisor::EndLost(const RankRef& ref, const task::TaskRecord& record,
                         const std::string& why) {
  if (record.container.empty()) return EndWithoutRecord(ref, why);
  handler_->RemoveContainer(record, lifetime_.Guard([this, ref, why] {
    if (const Rank* rank = Find(ref); rank == nullptr || rank->ended) return;
    EndWithoutRecord(ref, why);
  }));
}

void Supervisor::EndWithoutRecord(const RankRef& ref, const std::string& why) {
  task::ExitRecord record;
  record.kind = task::ExitKind::kSignaled;
  record.wait_status = SIGKILL;
  record.message = why;
  record.end_unix_nanos = ToUnixNanos(Now().wall);
  End(ref, record);
}

}  // namespace lockstep::worker::agent
