#include "tests/simulation/control.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace lockstep::simulation {
namespace {

using std::chrono_literals::operator""ms;
using std::chrono_literals::operator""s;

// A process manager starts it again after this time.
constexpr Duration kRestart = 200ms;

}  // namespace

Time SimClock::Now() const {
  return {time_->now(), FromUnixNanos(int64_t{1'767'225'600} * 1'000'000'000) +
                            time_->passed() + ahead_};
}

Control::Control(const Plan& plan, Timeline* time, Story* story,
                 Checker* checker, SimStore* store, std::function<void()> lost)
    : plan_(plan),
      time_(time),
      story_(story),
      checker_(checker),
      store_(store),
      lost_(std::move(lost)),
      clock_(time) {}

server::CoordinatorOptions Control::Options() {
  server::CoordinatorOptions options;
  const int slow = plan_.slow;
  options.membership.lease *= slow;
  options.stall.fresh *= slow;
  options.stall.least *= slow;
  options.inquiry.answer_timeout *= slow;
  // Short, so that a run has programs that move off silent hosts.
  options.silence.lost_after = 40s;
  options.timeouts.join = 60s;
  options.new_uid = [this] { return fmt::format("uid{}", ++drawn_); };
  options.new_key = [this] { return fmt::format("{:032x}", ++drawn_); };
  return options;
}

void Control::Begin() {
  Start();
  Tick();
}

void Control::Start() {
  if (coordinator_ != nullptr) return;
  ++life_;
  hub_ = std::make_unique<server::WatchHub>();
  coordinator_ = std::make_unique<server::Coordinator>(Options(), store_,
                                                       &clock_, hub_.get());
  Status loaded;
  try {
    loaded = coordinator_->Load();
  } catch (const CoordinatorCrash&) {
    return Die(kRestart);
  }
  if (!loaded.ok()) {
    checker_->Break(Invariant::kS5, "the store cannot be read: " +
                                        std::string(Message(loaded)));
    return;
  }
  LOCKSTEP_TELL(story_, "  the coordinator is up, epoch {}",
                coordinator_->epoch());
  news_ = false;
  watch_ = std::make_unique<server::WatchHub::Watch>(
      hub_.get(), "", coordinator_->queries()->version(),
      [this] { news_ = true; });
  (void)watch_->Take();
  seen_.clear();
  for (const auto& [name, job] : store_->jobs()) {
    seen_[name] = job->resource_version;
  }
}

void Control::Tick() {
  time_->After((plan_.slow > 1 ? 1000ms : 400ms), [this] { Tick(); });
  if (time_->now() < awake_) return;
  (void)Call([](server::Coordinator* coordinator) { coordinator->Tick(); });
}

bool Control::Call(const std::function<void(server::Coordinator*)>& call) {
  if (coordinator_ == nullptr) return false;
  try {
    call(coordinator_.get());
  } catch (const CoordinatorCrash&) {
    Die(kRestart);
    return false;
  }
  Watch();
  return true;
}

void Control::Watch() {
  if (!news_) return;
  news_ = false;
  // It is woken again only once it has taken everything.
  for (;;) {
    const auto news = watch_->Take();
    if (!news.ok()) {
      checker_->Break(Invariant::kS9, "a watcher missed a change: " +
                                          std::string(Message(news.status())));
      return;
    }
    for (const auto& change : news->changes) {
      seen_[change.name] =
          change.job == nullptr ? 0 : change.job->resource_version;
    }
    if (news->changes.empty() && news->progress.empty()) return;
  }
}

bool Control::WatcherIsCurrent() const {
  return std::all_of(store_->jobs().begin(), store_->jobs().end(),
                     [this](const auto& job) {
                       const auto seen = seen_.find(job.first);
                       return seen != seen_.end() &&
                              seen->second == job.second->resource_version;
                     });
}

void Control::Die(Duration down) {
  watch_.reset();
  coordinator_.reset();
  hub_.reset();
  lost_();
  time_->After(healed_ ? kRestart : down, [this] { Start(); });
}

void Control::Crash(Duration down) {
  if (coordinator_ != nullptr) Die(down);
}

void Control::Pause(Duration time) {
  awake_ = std::max(awake_, time_->now() + time);
}

}  // namespace lockstep::simulation
