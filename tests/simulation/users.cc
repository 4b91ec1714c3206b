#include "tests/simulation/users.h"

#include <fmt/format.h>

#include <utility>

#include "server/core/testing.h"

namespace lockstep::simulation {
namespace {

using std::chrono_literals::operator""ms;
using std::chrono_literals::operator""s;

constexpr Duration kPatience = 3s;

bool MayBeTriedAgain(const Status& status) {
  return status.code() == StatusCode::kUnavailable ||
         status.code() == StatusCode::kResourceExhausted;
}

std::string EncodeJob(const server::JobSnapshot& snapshot) {
  return fmt::format("{} {} v{}", snapshot.job->spec.name,
                     lockstep::Name(snapshot.job->state),
                     snapshot.job->resource_version);
}

std::string EncodeNode(const server::NodeSnapshot& node) {
  return fmt::format("{} {}", node.member.info.name,
                     lockstep::Name(node.member.state));
}

std::string_view MethodOf(MoveKind kind) {
  switch (kind) {
    case MoveKind::kSubmit:
      return "SubmitJob";
    case MoveKind::kReprioritize:
      return "UpdateJob";
    case MoveKind::kAskCheckpoint:
      return "RequestCheckpoint";
    case MoveKind::kResize:
      return "ResizeJob";
    case MoveKind::kDelete:
      return "DeleteJob";
    case MoveKind::kDrain:
      return "DrainNode";
    case MoveKind::kUndrain:
      return "UndrainNode";
    case MoveKind::kForgetNode:
      return "ForgetNode";
    default:
      return "CancelJob";
  }
}

bool IsOfNode(MoveKind kind) {
  return kind == MoveKind::kDrain || kind == MoveKind::kUndrain ||
         kind == MoveKind::kForgetNode;
}

std::string UserOf(MoveKind kind) {
  if (kind == MoveKind::kStranger) return "user/eve";
  return IsOfNode(kind) ? "user/root" : "user/ann";
}

}  // namespace

JobSpec Users::SpecOf(int32_t job) const {
  const auto choose = [&](int64_t n, uint64_t what) {
    return static_cast<int32_t>(
        time_->Choose(n, {40, static_cast<uint64_t>(job), what}));
  };
  const std::string name = JobLabel(job);
  JobSpec spec;
  if (choose(5, 1) < 3) {
    spec = server::NativeSpec(name, 1 + choose(4, 2));
    spec.output_directory = "/out/" + name;
    spec.checkpoint.interval_steps = 3 + choose(5, 3);
    if (choose(4, 4) == 0) spec.roles.Edit()[0].resources.gpus = 1;
    if (choose(4, 12) > 0) spec.elastic_min_tasks = 1 + choose(2, 13);
  } else {
    const bool servers = choose(2, 5) == 0;
    spec = server::ProgramSpec(
        name, {server::Role(TaskType::kChief, 1),
               server::Role(servers ? TaskType::kPs : TaskType::kWorker,
                            1 + choose(2, 6))});
    if (servers) {
      spec.end_with = EndWith::kChief;
      spec.restart_worker_alone = choose(2, 7) == 0;
    }
    if (!servers && choose(2, 14) == 0) {
      spec.elastic_min_tasks = 1;
      spec.rescale = true;
    }
    if (choose(2, 8) == 0) spec.node_lost_timeout = plan_.slow > 1 ? 40s : 12s;
  }
  spec.restart_budget = choose(4, 9);
  spec.priority = choose(2, 10);
  if (choose(3, 11) == 0) spec.spares = 1;
  return spec;
}

void Users::Order(const Move& move, int64_t number) {
  Request request;
  request.id = fmt::format("r{}", number);
  request.move = move;
  const std::string id = request.id;
  if (move.kind == MoveKind::kStranger) checker_->ForbidRequest(id);
  waiting_[id] = std::move(request);
  Send(id);
}

void Users::Send(const std::string& id) {
  const auto it = waiting_.find(id);
  if (it == waiting_.end()) return;
  Request& request = it->second;
  ++request.tries;
  const uint64_t name = Mix({HashOf(id), static_cast<uint64_t>(request.tries)});
  Duration way = time_->Delay(1ms, 20ms, {41, name});
  bool is_lost = false;
  bool answer_is_lost = false;
  if (armed_) {
    const Move armed = *std::exchange(armed_, std::nullopt);
    is_lost = armed.kind == MoveKind::kLoseRequest;
    answer_is_lost = armed.kind == MoveKind::kLoseAnswer;
    if (armed.kind == MoveKind::kLateRequest) way += armed.time;
    if (armed.kind == MoveKind::kDoubleRequest) {
      time_->After(way + time_->Delay(0ms, 5s, {42, name}),
                   [this, request] { Arrive(request, false); });
    }
  }
  if (!is_lost) {
    time_->After(way, [this, request, answer_is_lost] {
      Arrive(request, answer_is_lost);
    });
  }
  time_->After(kPatience, [this, id, tries = request.tries] {
    const auto waits = waiting_.find(id);
    if (waits != waiting_.end() && waits->second.tries == tries) Send(id);
  });
}

void Users::Arrive(const Request& request, bool answer_is_lost) {
  if (time_->now() < control_->awake()) {
    time_->At(control_->awake(), [this, request, answer_is_lost] {
      Arrive(request, answer_is_lost);
    });
    return;
  }
  StatusOr<std::string> answer = Unavailable("connection refused");
  const bool alive = control_->Call([&](server::Coordinator* coordinator) {
    answer = Execute(request, coordinator);
  });
  // Its answer died with it.
  if (!alive && control_->up()) return;
  if (!alive) answer = Unavailable("connection refused");
  if (bug_ == Bug::kAcknowledgesEarly &&
      answer.status().code() == StatusCode::kResourceExhausted) {
    answer = std::string("it will be done");
  }
  if (answer_is_lost) return;
  time_->After(time_->Delay(1ms, 20ms, {43, HashOf(request.id)}),
               [this, id = request.id, answer] { OnAnswer(id, answer); });
}

StatusOr<std::string> Users::Execute(const Request& request,
                                     server::Coordinator* coordinator) {
  server::RequestKey key;
  key.client = UserOf(request.move.kind);
  key.id = request.id;
  key.method = MethodOf(request.move.kind);
  key.content_hash = request.id;
  return IsOfNode(request.move.kind) ? ExecuteOnNode(request, key, coordinator)
                                     : ExecuteOnJob(request, key, coordinator);
}

StatusOr<std::string> Users::ExecuteOnJob(const Request& request,
                                          const server::RequestKey& key,
                                          server::Coordinator* coordinator) {
  const Move& move = request.move;
  const JobName job = JobLabel(move.job);
  server::JobCommands* const jobs = coordinator->jobs();
  const server::JobCheck may = [&](const server::Job&) -> Status {
    if (key.client == "user/eve" && bug_ != Bug::kLetsStrangerIn) {
      return PermissionDenied("job {} is not eve's", job);
    }
    return OkStatus();
  };
  switch (move.kind) {
    case MoveKind::kSubmit:
      return jobs->Submit(key, SpecOf(move.job), key.client, EncodeJob);
    case MoveKind::kReprioritize: {
      server::JobUpdate update;
      update.priority = move.number;
      return jobs->UpdateJob(key, job, update, may, EncodeJob);
    }
    case MoveKind::kAskCheckpoint:
      return jobs->RequestCheckpoint(key, job, may, EncodeJob);
    case MoveKind::kResize:
      return jobs->ResizeJob(key, job, move.number, may, EncodeJob);
    case MoveKind::kDelete:
      return jobs->DeleteJob(key, job, may, "gone");
    default:
      return jobs->CancelJob(key, job, may, EncodeJob);
  }
}

StatusOr<std::string> Users::ExecuteOnNode(const Request& request,
                                           const server::RequestKey& key,
                                           server::Coordinator* coordinator) {
  const NodeName node = NodeLabel(request.move.node);
  server::NodeCommands* const nodes = coordinator->nodes();
  if (request.move.kind == MoveKind::kUndrain) {
    return nodes->UndrainNode(key, node, {}, EncodeNode);
  }
  if (request.move.kind == MoveKind::kForgetNode) {
    return nodes->ForgetNode(key, node, [](const std::vector<JobName>& jobs) {
      return fmt::format("{} jobs", jobs.size());
    });
  }
  server::Drain drain;
  drain.requester = key.client;
  drain.reason = "new kernel";
  if (request.move.time > 2s) drain.grace = request.move.time;
  return nodes->DrainNode(key, node, drain, EncodeNode);
}

void Users::OnAnswer(const std::string& id,
                     const StatusOr<std::string>& answer) {
  if (answer.ok()) {
    LOCKSTEP_TELL(story_, "  request {} is answered: {}", id, *answer);
    checker_->OnAcknowledged(id, *answer);
    waiting_.erase(id);
    return;
  }
  if (!MayBeTriedAgain(answer.status())) {
    LOCKSTEP_TELL(story_, "  request {} is refused: {}", id,
                  Message(answer.status()));
    waiting_.erase(id);
    return;
  }
  time_->After(1s, [this, id] { Send(id); });
}

}  // namespace lockstep::simulation
