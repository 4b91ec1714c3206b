#include "worker/collective/tcp/tcp_communicator.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <new>
#include <utility>

#include "worker/collective/lost_peers.h"
#include "worker/collective/operation.h"
#include "worker/collective/tcp/algorithms.h"
#include "worker/collective/tcp/connect.h"
#include "worker/collective/tcp/directory.h"
#include "worker/collective/tcp/mesh.h"
#include "worker/collective/tcp/peer_watch.h"
#include "worker/collective/tcp/plan.h"
#include "worker/collective/tcp/tuning.h"
#include "worker/collective/threaded_communicator.h"

namespace lockstep::worker::collective::tcp {
namespace {

// For connecting, once all ranks have come.
constexpr Duration kConnectWithin = std::chrono::seconds(5);

class TcpTransport final : public Transport {
 public:
  // `mesh` is null for one rank. `address`: of this rank.
  TcpTransport(std::unique_ptr<tcp::Mesh> mesh, const tcp::Plan& plan,
               bool plan_given, tcp::Neighbours neighbours, std::string address)
      : mesh_(std::move(mesh)),
        plan_(plan),
        plan_given_(plan_given),
        neighbours_(std::move(neighbours)),
        address_(std::move(address)) {
    if (mesh_ != nullptr) {
      algorithms_ = std::make_unique<tcp::Algorithms>(mesh_.get(), plan);
    }
  }

  std::string_view name() const override { return "tcp"; }
  std::string Plan() const override {
    return tcp::DescribePlan(plan_, mesh_ == nullptr ? 1 : mesh_->size());
  }
  std::string ReductionPlan() const override {
    return mesh_ == nullptr ? "" : tcp::PlanLine(plan_, mesh_->size());
  }
  Status Tune(Duration budget, MonoTime deadline) override {
    if (mesh_ == nullptr || plan_given_) return OkStatus();
    return Guard([] { return "tuning"; },
                 [&]() -> Status {
                   auto tuned = MakeTuning(deadline).Run(plan_, budget);
                   if (tuned.ok()) plan_ = *tuned;
                   return tuned.status();
                 });
  }

  Status FollowPlan(const std::string& line, MonoTime deadline) override {
    if (mesh_ == nullptr) return Transport::FollowPlan(line, deadline);
    LOCKSTEP_ASSIGN_OR_RETURN(const tcp::Plan plan,
                              tcp::ParsePlan(line, mesh_->size()));
    if (plan.mesh_ranks != plan_.mesh_ranks) {
      return InvalidArgument(
          "the reduction plan connects up to {} ranks with each other, and "
          "these were connected by one of {}",
          plan.mesh_ranks, plan_.mesh_ranks);
    }
    return Guard(
        [] { return "taking another plan"; },
        [&]() -> Status {
          LOCKSTEP_RETURN_IF_ERROR(MakeTuning(deadline).Follow(plan_, plan));
          plan_ = plan;
          plan_given_ = true;
          return OkStatus();
        });
  }

  Status Check(const Operation&) const override { return OkStatus(); }
  bool HasAllToAll() const override {
    return mesh_ == nullptr || mesh_->size() <= plan_.mesh_ranks;
  }
  bool AnyThreadMayExecute() const override { return true; }
  void SetAwaited(bool awaited) override {
    if (mesh_ != nullptr) mesh_->waiter()->SetAwaited(awaited);
  }

  Status Execute(const Operation& operation, MonoTime deadline) override {
    if (mesh_ == nullptr) {
      if (operation.kind == CollectiveKind::kAllToAll) {
        CopyOwnPart(operation, 0, [] { return false; });
      }
      return OkStatus();
    }
    return Guard([&] { return Describe(operation); },
                 [&] {
                   mesh_->Begin(operation, deadline);
                   return algorithms_->Run(operation);
                 });
  }

  void Cut() override {
    if (mesh_ != nullptr) mesh_->links()->Cut();
  }

  // Tells `broken` also when a peer goes while nothing is executed; what is
  // executed next finds the same.
  Status WatchPeers(std::vector<tcp::PeerWatch::Peer> peers,
                    const BrokenFunction& broken) {
    watch_ = std::make_unique<tcp::PeerWatch>(
        std::move(peers),
        [this] { return busy_.load(std::memory_order_acquire); },
        [this, broken](int rank, int error) {
          if (mesh_->links()->IsCut()) return;
          if (error == ECONNRESET) reset_.store(true);
          broken(tcp::ConnectionLost(rank, error));
        });
    return watch_->Start();
  }

  std::optional<PeerWait> CurrentWait() const override {
    if (mesh_ == nullptr) return std::nullopt;
    return mesh_->waiter()->current_wait();
  }
  std::vector<int> LostPeers() const override {
    return mesh_ == nullptr ? std::vector<int>()
                            : mesh_->links()->Unanswering();
  }

 private:
  tcp::Tuning MakeTuning(MonoTime deadline) {
    return {mesh_.get(), algorithms_.get(), &neighbours_, address_, deadline};
  }

  // Runs `run`; an error's text begins with what describe() calls it, and that
  // of a late one goes on as a sentence.
  template <typename DescribeFunction, typename RunFunction>
  Status Guard(DescribeFunction describe, RunFunction run) {
    Status status;
    busy_.store(true, std::memory_order_release);
    try {
      status = run();
    } catch (const std::bad_alloc&) {
      status = ResourceExhausted("no memory");
    }
    busy_.store(false, std::memory_order_release);
    if (status.ok()) return status;
    // The kernel tells of a reset once: to the mesh it looks like an end.
    if (reset_.load()) status = WithLostPeers(status, {});
    if (status.code() == StatusCode::kDeadlineExceeded) {
      return WithLostPeers(
          DeadlineExceeded("{} {}", describe(), Message(status)),
          LostPeersOf(status));
    }
    return Annotate(status, describe());
  }

  const std::unique_ptr<tcp::Mesh> mesh_;
  tcp::Plan plan_;
  bool plan_given_;
  const tcp::Neighbours neighbours_;
  const std::string address_;
  std::unique_ptr<tcp::Algorithms> algorithms_;
  // The mesh is in use; its connections are looked at.
  std::atomic<bool> busy_{false};
  // The watch has seen a peer cut its connection off.
  std::atomic<bool> reset_{false};
  std::unique_ptr<tcp::PeerWatch> watch_;  // ends before the mesh
};

Status CheckOptions(const CommunicatorOptions& options) {
  if (options.size < 1 || options.rank < 0 || options.rank >= options.size) {
    return InvalidArgument("rank {} is out of range for {} ranks", options.rank,
                           options.size);
  }
  if (options.size > 1 && options.rendezvous == nullptr) {
    return InvalidArgument("{} ranks need a rendezvous store", options.size);
  }
  return OkStatus();
}

// Spinning helps only where every rank has a core.
bool MaySpin(const tcp::Directory& directory, int rank) {
  const std::string& host = directory.places[rank].host;
  const auto ranks_here = std::count_if(
      directory.places.begin(), directory.places.end(),
      [&](const tcp::Place& place) { return place.host == host; });
  return ranks_here <= sysconf(_SC_NPROCESSORS_ONLN);
}

// Returns when every rank has all its connections.
Status MeetAll(TcpTransport* transport, MonoTime deadline) {
  const Status status =
      transport->Execute({.kind = CollectiveKind::kBarrier}, deadline);
  if (status.ok()) return status;
  transport->Cut();
  if (status.code() == StatusCode::kDeadlineExceeded) {
    return WithLostPeers(
        Unavailable("a rank went away while forming: {}", Message(status)),
        LostPeersOf(status));
  }
  return Annotate(status, "a rank went away while forming");
}

tcp::Neighbours NeighboursOf(const CommunicatorOptions& options,
                             const tcp::Directory& directory) {
  tcp::Neighbours neighbours;
  neighbours.rank = options.rank;
  neighbours.peers = tcp::PeersOf(options.rank, options.size, directory.plan);
  for (const int peer : neighbours.peers) {
    neighbours.places.push_back(directory.places[peer]);
  }
  neighbours.secret = {options.key, directory.session};
  return neighbours;
}

// The first connections, which last as long as the mesh.
std::vector<tcp::PeerWatch::Peer> WatchedPeers(
    const std::vector<tcp::Connection>& connections) {
  std::vector<tcp::PeerWatch::Peer> peers;
  for (const tcp::Connection& connection : connections) {
    if (connection.stream > 0) continue;
    peers.push_back({connection.peer, connection.fd.get()});
  }
  return peers;
}

StatusOr<std::unique_ptr<TcpTransport>> FormTransport(
    const CommunicatorOptions& options, const BrokenFunction& broken) {
  LOCKSTEP_RETURN_IF_ERROR(CheckOptions(options));
  if (options.size == 1) {
    return std::make_unique<TcpTransport>(nullptr, tcp::Plan{}, true,
                                          tcp::Neighbours{}, "");
  }
  LOCKSTEP_ASSIGN_OR_RETURN(const tcp::Listener listener,
                            tcp::Listen(options.bind_address));
  LOCKSTEP_ASSIGN_OR_RETURN(
      const tcp::Directory directory,
      tcp::Exchange(options, {.address = options.bind_address,
                              .port = listener.port,
                              .host = tcp::MachineId()}));
  const MonoTime deadline = MonotonicNow() + kConnectWithin;
  tcp::Neighbours neighbours = NeighboursOf(options, directory);
  LOCKSTEP_ASSIGN_OR_RETURN(
      auto connections,
      tcp::ConnectPeers(neighbours, {.first = 0, .end = directory.plan.streams},
                        listener, deadline));
  auto watched = WatchedPeers(connections);
  auto transport = std::make_unique<TcpTransport>(
      std::make_unique<tcp::Mesh>(options.rank, options.size,
                                  std::move(connections),
                                  MaySpin(directory, options.rank)),
      directory.plan, directory.plan_given, std::move(neighbours),
      options.bind_address);
  LOCKSTEP_RETURN_IF_ERROR(MeetAll(transport.get(), deadline));
  if (broken) {
    LOCKSTEP_RETURN_IF_ERROR(transport->WatchPeers(std::move(watched), broken));
  }
  return transport;
}

}  // namespace

StatusOr<std::unique_ptr<Communicator>> FormTcp(
    const CommunicatorOptions& options, const BrokenFunction& broken) {
  auto transport = FormTransport(options, broken);
  if (!transport.ok()) return Annotate(transport.status(), options.label);
  return MakeThreadedCommunicator(
      {.rank = options.rank,
       .size = options.size,
       .label = options.label,
       .operation_timeout = options.operation_timeout,
       .broken = broken,
       .addresses = options.addresses},
      *std::move(transport));
}

}  // namespace lockstep::worker::collective::tcp
