#include "worker/agent/stream/requests.h"

#include <utility>

#include "worker/agent/work/work_files.h"

namespace lockstep::worker::agent {
namespace {

constexpr int kMaxProbes = 32;
// The coordinator sends fewer.
constexpr size_t kMostFileRequests = 32;

}  // namespace

Requests::Requests(
    const DaemonSetup* setup, EventLoop* loop, const WorkDirectories* work,
    std::function<void(uint64_t, const v1::WorkerMessage&)> answer,
    bool allow_sessions, SessionHooks session_hooks, GpuChecker::Parts checks)
    : setup_(setup),
      loop_(loop),
      work_(work),
      answer_(std::move(answer)),
      contacts_(setup->node.name, loop),
      sessions_(setup, loop, allow_sessions, std::move(session_hooks)),
      checks_(std::move(checks)) {}

Requests::~Requests() {
  if (listener_ != nullptr) loop_->Unwatch(listener_->fd());
}

Status Requests::Start() {
  if (listener_ == nullptr) return OkStatus();
  return loop_->Watch(listener_->fd(), [this] {
    listener_->Dispatch([this](Fd fd) { contacts_.Take(std::move(fd)); });
  });
}

void Requests::OnProbe(uint64_t stream, const ProbeQuery& query) {
  // A coordinator that asks faster than probes end gets no answer to the rest.
  if (probes_ >= kMaxProbes) return;
  ++probes_;
  probe_thread_.Add([this, stream, query] {
    const ProbeAnswer found{query.id, Probe(query.targets, query.timeout)};
    loop_->Post(lifetime_.Guard([this, stream, found] {
      --probes_;
      ProbeAnswer answer = found;
      for (ProbeResult& result : answer.results) {
        result.quiet = contacts_.QuietOf(result.node);
      }
      v1::WorkerMessage message;
      *message.mutable_probe_reply() = ToProto(answer);
      answer_(stream, message);
    }));
  });
}

void Requests::SendFile(uint64_t stream, const FileAnswer& answer) {
  v1::WorkerMessage message;
  *message.mutable_file_reply() = ToProto(answer);
  answer_(stream, message);
}

void Requests::OnFile(uint64_t stream, const FileQuery& query) {
  FileAnswer refusal;
  refusal.id = query.id;
  const auto path = work_->PathOf(query.job_uid, query.type, query.index);
  if (!path.ok()) {
    refusal.status = path.status();
    return SendFile(stream, refusal);
  }
  if (files_ >= kMostFileRequests) {
    refusal.status =
        Unavailable("node {} already serves {} file requests: try again later",
                    setup_->node.name, files_);
    return SendFile(stream, refusal);
  }
  ++files_;
  file_thread_.Add([this, stream, query, path = *path] {
    auto answer = std::make_shared<FileAnswer>(
        AnswerQuery(path, query, setup_->user, WalkLimits(), MonotonicNow));
    loop_->Post(lifetime_.Guard([this, stream, answer] {
      --files_;
      SendFile(stream, *answer);
    }));
  });
}

}  // namespace lockstep::worker::agent
