// The real coordinator in the simulated world: it ticks, stands still, dies and
// starts again from its store.
#ifndef LOCKSTEP_TESTS_SIMULATION_CONTROL_H_
#define LOCKSTEP_TESTS_SIMULATION_CONTROL_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "server/coordinator/coordinator.h"
#include "tests/simulation/checker.h"
#include "tests/simulation/move.h"
#include "tests/simulation/sim_store.h"
#include "tests/simulation/timeline.h"

namespace lockstep::simulation {

// A machine's clocks; its date may jump.
class SimClock final : public Clock {
 public:
  explicit SimClock(const Timeline* time) : time_(time) {}
  Time Now() const override;
  void Jump(Duration by) { ahead_ += by; }

 private:
  const Timeline* const time_;
  Duration ahead_{};
};

class Control {
 public:
  // All are borrowed. `lost` is called when the coordinator is gone: its
  // streams are, too.
  Control(const Plan& plan, Timeline* time, Story* story, Checker* checker,
          SimStore* store, std::function<void()> lost);

  // Starts the coordinator and its ticks.
  void Begin();
  bool up() const { return coordinator_ != nullptr; }
  // It handles nothing before that.
  MonoTime awake() const { return awake_; }
  // Rises with each start.
  uint64_t life() const { return life_; }

  // Calls the coordinator. False: it is down, or died of the call.
  bool Call(const std::function<void(server::Coordinator*)>& call);

  void Crash(Duration down);
  void Pause(Duration time);
  void JumpClock(Duration by) { clock_.Jump(by); }
  // From now on it starts again at once.
  void Heal() { healed_ = true; }

  // Whether a watcher of all jobs has been told of the last version of each.
  bool WatcherIsCurrent() const;

 private:
  server::CoordinatorOptions Options();
  void Start();
  void Tick();
  void Watch();
  void Die(Duration down);

  const Plan plan_;
  Timeline* const time_;
  Story* const story_;
  Checker* const checker_;
  SimStore* const store_;
  const std::function<void()> lost_;
  SimClock clock_;
  std::unique_ptr<server::WatchHub> hub_;
  std::unique_ptr<server::Coordinator> coordinator_;
  std::unique_ptr<server::WatchHub::Watch> watch_;
  // Changes wait for the watcher.
  bool news_ = false;
  // By job: the version that the watcher has seen.
  std::map<JobName, int64_t> seen_;
  uint64_t life_ = 0;
  uint64_t drawn_ = 0;
  MonoTime awake_{};
  bool healed_ = false;
};

}  // namespace lockstep::simulation

#endif  // LOCKSTEP_TESTS_SIMULATION_CONTROL_H_
