// A whole cluster in one thread and in virtual time: the real coordinator and
// the real AgentCores, on simulated hosts, disks and networks.
//
// A run is its seed and its moves. It gets into trouble by its moves, then all
// is made well again, and every job must come to its end. The checker looks at
// each change; the run ends with the first invariant that is broken.
#ifndef LOCKSTEP_TESTS_SIMULATION_WORLD_H_
#define LOCKSTEP_TESTS_SIMULATION_WORLD_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tests/simulation/bug.h"
#include "tests/simulation/checker.h"
#include "tests/simulation/control.h"
#include "tests/simulation/invariant.h"
#include "tests/simulation/move.h"
#include "tests/simulation/network.h"
#include "tests/simulation/node.h"
#include "tests/simulation/sim_store.h"
#include "tests/simulation/timeline.h"
#include "tests/simulation/training.h"
#include "tests/simulation/users.h"

namespace lockstep::simulation {

// A run has at least this many events, and the trouble ends after this many.
inline constexpr int64_t kEvents = 2000;
inline constexpr int64_t kTroubledEvents = 1600;

// A run before it is played.
struct Trial {
  Plan plan;
  std::vector<Move> moves;
  // When all is made well again; nullopt: after kTroubledEvents.
  std::optional<Duration> heal_at;
  // Nothing is of interest after this.
  std::optional<Duration> stop_at;
  Bug bug = Bug::kNone;
};
// That of the seed.
Trial DrawTrial(uint64_t seed, Bug bug = Bug::kNone);

struct Outcome {
  std::optional<Violation> violation;
  int64_t events = 0;
  // Equal for equal runs.
  uint64_t digest = 0;
  Duration passed{};
  // When all was made well again.
  Duration healed{};
  Checker::Coverage coverage;
  std::vector<std::string> story;
};

// `tell`: fills Outcome::story.
Outcome Play(const Trial& run, bool tell = false);

class World {
 public:
  World(const Trial& run, bool tell);
  Outcome Play();

 private:
  void Trouble();
  bool IsStopped() const {
    return checker_.broken() ||
           (run_.stop_at && time_.passed() >= *run_.stop_at);
  }
  void Heal();
  void Undrain();
  bool IsOver() const;
  void CheckEnd();
  void Apply(const Move& move, int64_t number);
  void ApplyToControl(const Move& move);
  void ApplyToNode(const Move& move);
  void ApplyToRank(const Move& move);

  const Trial run_;
  Timeline time_;
  Story story_;
  Checker checker_;
  SimStore store_;
  Control control_;
  Network network_;
  Training training_;
  Users users_;
  std::vector<std::unique_ptr<Node>> nodes_;
  bool healing_ = false;
  int64_t undrains_ = 0;
  Duration healed_{};
};

}  // namespace lockstep::simulation

#endif  // LOCKSTEP_TESTS_SIMULATION_WORLD_H_
