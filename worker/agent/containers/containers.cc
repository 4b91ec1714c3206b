#include "worker/agent/containers/containers.h"

#include <utility>

#include "common/base/logging.h"
#include "worker/container/cli_engine.h"
#include "worker/container/find_engine.h"

namespace lockstep::worker::agent {
namespace {

constexpr Duration kRemoveTime = std::chrono::seconds(30);

}  // namespace

Containers::Containers(const DaemonSetup* setup, EventLoop* loop,
                       Duration sweep_every,
                       std::function<bool(const std::string&)> is_held)
    : setup_(setup),
      loop_(loop),
      sweep_every_(sweep_every),
      is_held_(std::move(is_held)) {}

void Containers::Remove(const task::TaskRecord& record,
                        std::function<void()> done) {
  TryRemoval(record.container, record.engine,
             [this, record, done = std::move(done)](const Status& removed) {
               if (removed.ok()) {
                 LOG_WARN("removed the container {}: its rank has ended",
                          record.container);
               } else {
                 LOG_ERROR("{}", Message(removed));
                 left_[record.container] = record.engine;
                 SweepLater();
               }
               done();
             });
}

void Containers::TryRemoval(const std::string& name, const std::string& program,
                            std::function<void(const Status&)> done) {
  auto engine = engine_;
  if (engine != nullptr && engine->program() != program) engine.reset();
  thread_.Add([this, engine, name, program,
               done = lifetime_.Guard(std::move(done)),
               env = container::ClientEnvironment(setup_->environment)] {
    const MonoTime deadline = MonotonicNow() + kRemoveTime;
    const Status status = engine != nullptr ? engine->Remove(name, deadline)
                                            // An earlier daemon's engine.
                                            : container::RemoveContainerBy(
                                                  program, env, name, deadline);
    loop_->Post([status, done] { done(status); });
  });
}

void Containers::SweepLater() {
  if (sweep_is_due_) return;
  sweep_is_due_ = true;
  loop_->At(loop_->Now().mono + sweep_every_, lifetime_.Guard([this] {
    sweep_is_due_ = false;
    Sweep();
  }));
}

void Containers::Sweep() {
  if (engine_ == nullptr && left_.empty()) return;
  // One at a time: what is found when, decides whose container is dead.
  if (sweeping_) return SweepLater();
  sweeping_ = true;
  if (engine_ == nullptr) return RemoveDead({});
  thread_.Add([this, engine = engine_] {
    auto found =
        std::make_shared<StatusOr<std::vector<container::FoundContainer>>>(
            engine->List(setup_->mark, MonotonicNow() + kRemoveTime));
    loop_->Post(lifetime_.Guard([this, found] {
      if (!found->ok()) {
        LOG_WARN("{}", Message(found->status()));
        SweepLater();
      }
      RemoveDead(found->ok() ? **found
                             : std::vector<container::FoundContainer>());
    }));
  });
}

void Containers::RemoveDead(
    const std::vector<container::FoundContainer>& found) {
  Dead dead = std::exchange(left_, {});
  for (const container::FoundContainer& container : found) {
    if (!is_held_(container.name)) dead[container.name] = engine_->program();
  }
  RemoveNext(std::make_shared<Dead>(std::move(dead)));
}

void Containers::RemoveNext(const std::shared_ptr<Dead>& dead) {
  if (dead->empty()) {
    sweeping_ = false;
    return;
  }
  const auto [name, program] = *dead->begin();
  dead->erase(dead->begin());
  // Each by itself, so that what hangs holds up neither the others for good
  // nor a rank whose end waits for its container.
  TryRemoval(
      name, program,
      [this, name = name, program = program, dead](const Status& removed) {
        LOG_WARN("the container {} of an ended rank {}", name,
                 removed.ok() ? "is removed" : "stays: " + Message(removed));
        if (!removed.ok()) {
          left_[name] = program;
          SweepLater();
        }
        RemoveNext(dead);
      });
}

}  // namespace lockstep::worker::agent
