#include "worker/agent/ranks/rank_fences.h"

#include <algorithm>
#include <utility>

#include "common/base/logging.h"
#include "common/wire/probe_wire.h"
#include "worker/agent/core/local_gang.h"
#include "worker/agent/host/boot_clock.h"
#include "worker/agent/stream/contact.h"

namespace lockstep::worker::agent {
namespace {

constexpr Duration kLongestAsking = std::chrono::seconds(2);

std::string PathOf(const DaemonSetup& setup) {
  return JoinPath(setup.dir, "neighbours");
}

}  // namespace

RankFences::RankFences(const DaemonSetup* setup, EventLoop* loop,
                       FileSystem* files, const CoreRunner* core,
                       std::function<void(const GangKey&, int64_t)> renew)
    : setup_(setup),
      loop_(loop),
      files_(files),
      core_(core),
      renew_(std::move(renew)) {}

void RankFences::Load() {
  const auto bytes = files_->Read(PathOf(*setup_), 64 << 10);
  if (!bytes.ok()) return;
  v1::Neighbours message;
  if (!message.ParseFromString(*bytes)) {
    LOG_WARN("{} is damaged: the coordinator sends it again", PathOf(*setup_));
    return;
  }
  auto list = FromProto(message);
  if (list.ok()) neighbours_ = *std::move(list);
}

void RankFences::SetNeighbours(const NeighbourList& list) {
  if (list == neighbours_) return;
  neighbours_ = list;
  const Status saved = files_->WriteAtomic(
      PathOf(*setup_), ToProto(list).SerializeAsString(), 0600);
  // This daemon knows them, and its successor would not.
  if (!saved.ok()) LOG_ERROR("{}", Message(saved));
}

void RankFences::OnCoordinator(int64_t sent) {
  contacts_.OnCoordinator(sent);
  Renew();
}

int64_t RankFences::Until(const GangKey& key) const {
  const LocalGang* const gang = core_->Find(key);
  if (gang == nullptr || !gang->status.fence) return 0;
  // Whoever launches it has just been heard.
  return contacts_.Until(*gang->status.fence).value_or(BootNanos());
}

void RankFences::Renew() {
  std::erase_if(renewed_, [this](const auto& renewal) {
    return core_->Find(renewal.first) == nullptr;
  });
  for (const auto& [key, gang] : core_->core().gangs()) {
    const std::optional<Fence>& fence = gang.status.fence;
    if (!fence || IsOver(gang.status.phase)) continue;
    const std::optional<int64_t> until = contacts_.Until(*fence);
    int64_t& renewed = renewed_[key];
    if (!until || *until - renewed < StepOf(*fence).count() / 2) continue;
    renewed = *until;
    renew_(key, *until);
  }
}

void RankFences::Tick() {
  if (asking_ || loop_->Now().mono < next_asking_) return;
  std::optional<Duration> step;
  for (const auto& [key, gang] : core_->core().gangs()) {
    const std::optional<Fence>& fence = gang.status.fence;
    if (!fence || IsOver(gang.status.phase) ||
        !contacts_.NeedsNeighbours(*fence, BootNanos())) {
      continue;
    }
    step = std::min(step.value_or(StepOf(*fence)), StepOf(*fence));
  }
  if (!step || neighbours_.targets.empty()) return;
  next_asking_ = loop_->Now().mono + *step / 2;
  AskNeighbours(std::min(*step, kLongestAsking));
}

void RankFences::AskNeighbours(Duration timeout) {
  asking_ = true;
  if (thread_ == nullptr) thread_ = std::make_unique<WorkThread>();
  thread_->Add([this, targets = neighbours_.targets, timeout] {
    const int64_t sent = BootNanos();
    const bool answered =
        agent::AskNeighbours(setup_->node.name, targets, timeout);
    loop_->Post(lifetime_.Guard([this, sent, answered] {
      asking_ = false;
      if (!answered) return;
      contacts_.OnNeighbour(sent);
      Renew();
    }));
  });
}

}  // namespace lockstep::worker::agent
