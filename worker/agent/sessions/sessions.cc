#include "worker/agent/sessions/sessions.h"

#include <utility>

#include "common/base/logging.h"
#include "worker/agent/sessions/session_streams.h"

namespace lockstep::worker::agent {

Sessions::Sessions(const DaemonSetup* setup, EventLoop* loop, bool allowed,
                   SessionHooks hooks)
    : setup_(setup), loop_(loop), allowed_(allowed), hooks_(std::move(hooks)) {}

Sessions::~Sessions() {
  for (auto& [id, open] : open_) open->call->Cancel();
  for (auto& [id, open] : open_) open->thread.join();
}

StatusOr<Sessions::Work> Sessions::Begin(const SessionOrder& order) {
  const SessionRequest& request = order.request;
  if (!allowed_) {
    return WithReason(
        FailedPrecondition("node {} allows no sessions in ranks (--exec of its "
                           "worker daemon)",
                           setup_->node.name),
        "SESSIONS_OFF");
  }
  if (open_.size() >= kMost) {
    return ResourceExhausted("node {} has {} open sessions, which is the limit",
                             setup_->node.name, open_.size());
  }
  const RankRef ref{{request.name, order.generation}, request.rank};
  v1::SessionStarted started;
  started.set_node(setup_->node.name);
  started.set_generation(order.generation);
  if (request.profile) {
    LOCKSTEP_ASSIGN_OR_RETURN(ProfileTarget target, hooks_.profile(ref));
    return Work([started, target = std::move(target),
                 profile = *request.profile](SessionCall* call, Bell* bell) {
      RunProfile(target, profile, started, call, bell);
    });
  }
  std::vector<Fd> theirs;
  LOCKSTEP_ASSIGN_OR_RETURN(
      SessionStreams streams,
      MakeSessionStreams(
          request.command ? request.command->terminal : std::nullopt,
          setup_->user, &theirs));
  std::vector<int> fds;
  for (const Fd& fd : theirs) fds.push_back(fd.get());
  LOCKSTEP_RETURN_IF_ERROR(hooks_.start(ref, request, fds));
  auto shared = std::make_shared<SessionStreams>(std::move(streams));
  return Work([started, shared](SessionCall* call, Bell* bell) {
    SessionPump(std::move(*shared), started, call, bell).Run();
  });
}

void Sessions::OnOrder(const SessionOrder& order) {
  if (client_ == nullptr || open_.contains(order.id)) return;
  auto work = Begin(order);
  if (!work.ok()) {
    LOG_INFO("a session in {} rank {} was not started: {}", order.request.name,
             order.request.rank, Message(work.status()));
    // A client that asks too much costs a thread for the moment of its answer.
    if (open_.size() >= 2 * kMost) return;
    work =
        Work([last = NotStarted(work.status())](SessionCall* call, Bell* bell) {
          SendLast(last, call, bell);
        });
  }
  auto owned = std::make_unique<Open>();
  Open* const open = owned.get();
  const uint64_t id = order.id;
  open_[id] = std::move(owned);
  open->call = client_->Open(id, [open] { open->bell.Ring(); });
  auto ended = lifetime_.Guard([this, id] { OnEnded(id); });
  open->thread = std::thread(
      [open, loop = loop_, work = *std::move(work), ended = std::move(ended)] {
        work(open->call.get(), &open->bell);
        loop->Post(ended);
      });
}

void Sessions::OnEnded(uint64_t id) {
  const auto it = open_.find(id);
  it->second->thread.join();
  open_.erase(it);
}

}  // namespace lockstep::worker::agent
