#include "tests/simulation/network.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "tests/simulation/move.h"

namespace lockstep::simulation {
namespace {

using std::chrono_literals::operator""ms;
using std::chrono_literals::operator""s;
using std::chrono_literals::operator""us;

// Until gRPC's keepalive ends a stream that is cut.
constexpr Duration kKeepalive = 15s;
// A message that waits to be overtaken arrives after this time at the latest.
constexpr Duration kLongestSwap = 1s;

}  // namespace

// Called with the coordinator's lock held: queues, and nothing else.
class Network::Link final : public server::WorkerLink {
 public:
  Link(Network* network, uint64_t stream, NodeName node, StorePoint point)
      : network_(network),
        stream_(stream),
        node_(std::move(node)),
        point_(std::move(point)) {}

  void SendWelcome() override {
    network_->SendDown(
        stream_,
        [point = point_](StreamEnd* end, uint64_t id) {
          end->OnWelcome(id, point);
        },
        /*may_suffer=*/false);
  }
  void SendAssignment(const Assignment& assignment,
                      const std::shared_ptr<const server::SharedClusterSpec>&
                          cluster) override {
    auto order = std::make_shared<Assignment>(assignment);
    if (cluster != nullptr) order->cluster = cluster->spec();
    network_->checker_->OnOrder(node_, *order);
    network_->SendDown(stream_, [order](StreamEnd* end, uint64_t id) {
      end->OnOrder(id, *order);
    });
  }
  void SendRendezvous(const JobName& job, Generation generation,
                      const std::string& key,
                      const std::string& value) override {
    network_->SendDown(stream_, [=](StreamEnd* end, uint64_t id) {
      end->OnValue(id, job, generation, key, value);
    });
  }
  void SendPrefetch(const Prefetch& /*wanted*/) override {}
  void SendHeartbeatAck(uint64_t sequence) override {
    network_->SendDown(stream_, [sequence](StreamEnd* end, uint64_t id) {
      end->OnBeatAnswered(id, sequence);
    });
  }
  void SendProbe(const ProbeQuery& query) override {
    network_->SendDown(stream_, [query](StreamEnd* end, uint64_t id) {
      end->OnProbeQuery(id, query);
    });
  }
  void SendNeighbours(const NeighbourList& list) override {
    network_->SendDown(stream_, [list](StreamEnd* end, uint64_t id) {
      end->OnNeighbours(id, list);
    });
  }
  void Close(const Status& status) override {
    network_->EndBelow(stream_, 1ms, status);
  }

 private:
  Network* const network_;
  const uint64_t stream_;
  const NodeName node_;
  const StorePoint point_;
};

uint64_t Network::Connect(int32_t node, Registering registering) {
  const uint64_t number = next_stream_++;
  Stream& stream = streams_[number];
  stream.node = node;
  stream.life = control_->life();
  if (!control_->up()) {
    EndBelow(number, 2ms, Unavailable("connection refused"));
    return number;
  }
  Deliver(
      number, Way::kUp,
      [this, number, registering = std::move(registering)] {
        Register(number, registering);
      },
      /*may_suffer=*/false);
  return number;
}

void Network::Register(uint64_t number, const Registering& registering) {
  Stream& stream = streams_.at(number);
  Status answer;
  const bool alive = control_->Call([&](server::Coordinator* coordinator) {
    server::NodeSessions* const sessions = coordinator->sessions();
    const NodeName& node = registering.info.name;
    if (!registering.obeyed.history.empty()) {
      answer = sessions->CheckObeyed(node, registering.obeyed);
      if (!answer.ok()) return;
    }
    const auto session = sessions->Register(
        registering.info, registering.gangs,
        std::make_shared<Link>(this, number, node, sessions->point()), {},
        /*probe_port=*/7000 + stream.node);
    answer = session.status();
    if (!session.ok()) return;
    stream.session = *session;
    stream.open_above = true;
    checker_->OnHeard(node);
  });
  if (!alive) return;
  if (!answer.ok()) EndBelow(number, 1ms, answer);
}

void Network::Send(uint64_t number, Up message) {
  const auto it = streams_.find(number);
  if (it == streams_.end() || !it->second.open_below) return;
  Deliver(
      number, Way::kUp,
      [this, number, message = std::move(message)] {
        const Stream& stream = streams_.at(number);
        if (stream.session == 0) return;
        (void)control_->Call([&](server::Coordinator* coordinator) {
          const Status answer = message(coordinator, stream.session);
          // The stream has ended: its late messages have no sender.
          if (!stream.open_above) checker_->OnLate(answer);
        });
      },
      /*may_suffer=*/true);
}

void Network::SendDown(uint64_t number, Down message, bool may_suffer) {
  const auto it = streams_.find(number);
  if (it == streams_.end()) return;
  Deliver(
      number, Way::kDown,
      [this, number, message = std::move(message)] {
        message(ends_[static_cast<size_t>(streams_.at(number).node)], number);
      },
      may_suffer);
}

// A stream begins with its Register and its Welcome.
void Network::Deliver(uint64_t number, Way way, std::function<void()> message,
                      bool may_suffer) {
  Stream& stream = streams_.at(number);
  Direction& direction = stream.ways[static_cast<size_t>(way)];
  NodeWay& node = WayOf(stream.node, way);
  const Trouble trouble =
      may_suffer ? std::exchange(node.trouble, Trouble::kNone) : Trouble::kNone;
  MonoTime at =
      time_->now() +
      time_->Delay(100us, 8ms,
                   {1, number, static_cast<uint64_t>(way), ++stream.messages});
  if (trouble == Trouble::kLate) at += node.late;
  // As TCP: what is behind a late one is late, too.
  at = std::max(at, direction.last + 1us);
  direction.last = at;
  if (trouble == Trouble::kSwap && !direction.held) {
    direction.held = message;
    time_->At(at + kLongestSwap, [this, number, way] {
      Direction& late = streams_.at(number).ways[static_cast<size_t>(way)];
      if (auto held = std::exchange(late.held, nullptr)) {
        Arrive(number, way, std::move(held));
      }
    });
    return;
  }
  const int copies = trouble == Trouble::kDouble ? 2 : 1;
  for (int i = 0; i < copies; ++i) {
    time_->At(at,
              [this, number, way, message] { Arrive(number, way, message); });
  }
}

void Network::Arrive(uint64_t number, Way way, std::function<void()> message) {
  Stream& stream = streams_.at(number);
  if (way == Way::kUp) {
    // What is on its way dies with the coordinator that it is for.
    if (stream.life != control_->life() || !control_->up()) return;
    if (time_->now() < control_->awake()) {
      time_->At(control_->awake(),
                [this, number, way, message] { Arrive(number, way, message); });
      return;
    }
  }
  const MonoTime cut = WayOf(stream.node, way).cut_until;
  if (time_->now() < cut) {
    // TCP sends it again until the stream ends.
    time_->At(cut,
              [this, number, way, message] { Arrive(number, way, message); });
    return;
  }
  message();
  if (auto held = std::exchange(
          streams_.at(number).ways[static_cast<size_t>(way)].held, nullptr)) {
    held();
  }
}

void Network::EndAbove(uint64_t number, Duration after) {
  time_->After(after, [this, number] {
    Stream& stream = streams_.at(number);
    if (!std::exchange(stream.open_above, false)) return;
    if (stream.life != control_->life()) return;
    (void)control_->Call([&](server::Coordinator* coordinator) {
      coordinator->sessions()->OnStreamEnd(stream.session);
    });
  });
}

void Network::EndBelow(uint64_t number, Duration after, const Status& status) {
  time_->After(after, [this, number, status] {
    Stream& stream = streams_.at(number);
    if (!std::exchange(stream.open_below, false)) return;
    ends_[static_cast<size_t>(stream.node)]->OnStreamClosed(number, status);
    EndAbove(number, 1ms);
  });
}

void Network::Vanish(uint64_t number) {
  const auto it = streams_.find(number);
  if (it == streams_.end() || !it->second.open_below) return;
  it->second.open_below = false;
  EndAbove(number, kKeepalive);
}

void Network::Close(uint64_t number) {
  const auto it = streams_.find(number);
  if (it == streams_.end() || !it->second.open_below) return;
  it->second.open_below = false;
  const bool cut = time_->now() < WayOf(it->second.node, Way::kUp).cut_until;
  EndAbove(number, cut ? kKeepalive : time_->Delay(1ms, 400ms, {2, number}));
}

void Network::Break(int32_t node) {
  for (auto& [number, stream] : streams_) {
    if (stream.node != node || !stream.open_below) continue;
    // The two ends see it at different times, and what was on its way may
    // still arrive.
    EndBelow(number, time_->Delay(0ms, 300ms, {3, number}),
             Unavailable("connection reset"));
    EndAbove(number, time_->Delay(0ms, 1500ms, {4, number}));
  }
}

void Network::Cut(int32_t node, Way way, Duration time) {
  NodeWay& cut = WayOf(node, way);
  cut.cut_until = std::max(cut.cut_until, time_->now() + time);
  if (time < kKeepalive) return;
  for (auto& [number, stream] : streams_) {
    if (stream.node != node || !stream.open_below) continue;
    EndBelow(number, kKeepalive, Unavailable("keepalive watchdog timeout"));
    EndAbove(number, kKeepalive + 100ms);
  }
}

void Network::Arm(int32_t node, Way way, Trouble trouble, Duration late) {
  NodeWay& armed = WayOf(node, way);
  armed.trouble = trouble;
  armed.late = late;
}

void Network::OnCoordinatorLost() {
  for (auto& [number, stream] : streams_) {
    stream.open_above = false;
    if (!stream.open_below) continue;
    EndBelow(number, time_->Delay(1ms, 300ms, {5, number}),
             Unavailable("connection reset"));
  }
}

void Network::Heal() {
  ways_.clear();
  for (size_t node = 0; node < ends_.size(); ++node) {
    Break(static_cast<int32_t>(node));
  }
}

}  // namespace lockstep::simulation
