// The streams between the daemons and the coordinator, with everything that may
// happen to a message.
#ifndef LOCKSTEP_TESTS_SIMULATION_NETWORK_H_
#define LOCKSTEP_TESTS_SIMULATION_NETWORK_H_

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/model/assignment.h"
#include "common/model/probe.h"
#include "server/coordinator/coordinator.h"
#include "tests/simulation/checker.h"
#include "tests/simulation/control.h"
#include "tests/simulation/timeline.h"

namespace lockstep::simulation {

// What arrives at a daemon. `stream` is the number that Connect returned.
class StreamEnd {
 public:
  virtual ~StreamEnd() = default;
  virtual void OnWelcome(uint64_t stream, const StorePoint& coordinator) = 0;
  // `epoch`: of the coordinator that has sent it.
  virtual void OnOrder(uint64_t stream, const Assignment& order) = 0;
  virtual void OnValue(uint64_t stream, const JobName& job,
                       Generation generation, const std::string& key,
                       const std::string& value) = 0;
  virtual void OnBeatAnswered(uint64_t stream, uint64_t sequence) = 0;
  virtual void OnProbeQuery(uint64_t stream, const ProbeQuery& query) = 0;
  virtual void OnNeighbours(uint64_t stream, const NeighbourList& list) = 0;
  virtual void OnStreamClosed(uint64_t stream, const Status& status) = 0;
};

struct Registering {
  NodeInfo info;
  std::vector<GangStatus> gangs;
  StorePoint obeyed;
};

enum class Way { kUp, kDown };

class Network {
 public:
  // What the coordinator does with a message of a stream. An error is its
  // answer to the stream.
  using Up = std::function<Status(server::Coordinator*, server::SessionId)>;
  using Down = std::function<void(StreamEnd*, uint64_t)>;

  // All are borrowed.
  Network(Timeline* time, Story* story, Checker* checker, Control* control)
      : time_(time), story_(story), checker_(checker), control_(control) {}
  void Add(StreamEnd* daemon) { ends_.push_back(daemon); }

  // A new stream of the node; the old one, if any, has ended for the daemon.
  uint64_t Connect(int32_t node, Registering registering);
  void Send(uint64_t stream, Up message);
  // The daemon ends it.
  void Close(uint64_t stream);
  // Its host is gone, which the coordinator does not hear.
  void Vanish(uint64_t stream);
  // `may_suffer`: the next fault may be this message's.
  void SendDown(uint64_t stream, Down message, bool may_suffer = true);

  // ---- Faults ----
  void Break(int32_t node);
  void Cut(int32_t node, Way way, Duration time);
  enum class Trouble { kNone, kLate, kDouble, kSwap };
  // Of the node's next message.
  void Arm(int32_t node, Way way, Trouble trouble, Duration late);
  void OnCoordinatorLost();
  void Heal();

 private:
  class Link;
  struct Direction {
    // Messages arrive in the order in which they were sent.
    MonoTime last{};
    // Waits for the next one to overtake it.
    std::function<void()> held;
  };
  struct Stream {
    int32_t node = 0;
    // Of the coordinator that it leads to.
    uint64_t life = 0;
    server::SessionId session = 0;
    bool open_above = false;
    bool open_below = true;
    std::array<Direction, 2> ways;
    uint64_t messages = 0;
  };
  struct NodeWay {
    MonoTime cut_until{};
    Trouble trouble = Trouble::kNone;
    Duration late{};
  };

  void Deliver(uint64_t stream, Way way, std::function<void()> message,
               bool may_suffer);
  void Arrive(uint64_t stream, Way way, std::function<void()> message);
  void Register(uint64_t stream, const Registering& registering);
  void EndAbove(uint64_t stream, Duration after);
  void EndBelow(uint64_t stream, Duration after, const Status& status);
  NodeWay& WayOf(int32_t node, Way way) {
    return ways_[{node, static_cast<int>(way)}];
  }

  Timeline* const time_;
  Story* const story_;
  Checker* const checker_;
  Control* const control_;
  std::vector<StreamEnd*> ends_;
  std::map<uint64_t, Stream> streams_;
  std::map<std::pair<int32_t, int>, NodeWay> ways_;
  uint64_t next_stream_ = 1;
};

}  // namespace lockstep::simulation

#endif  // LOCKSTEP_TESTS_SIMULATION_NETWORK_H_
