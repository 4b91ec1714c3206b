#include "worker/collective/gloo_mesh.h"

#include <fcntl.h>
#include <gloo/common/error.h>
#include <gloo/transport/pair.h>
#include <gloo/transport/tcp/address.h>
#include <gloo/transport/tcp/device.h>
#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstring>
#include <exception>
#include <utility>

#include "worker/collective/gloo_buffer.h"
#include "worker/collective/sockets.h"

namespace lockstep {
namespace {

using std::chrono::milliseconds;
using Bytes = std::vector<char>;

// Above the slots of Gloo's collectives, whose top byte is at most 8.
constexpr uint64_t kGoodbyeSlot = 0xff00000000000000;
constexpr int kMaxRanks = 64;
// Gloo waits five of its timeouts for one connection. All peers have come by
// then, so this is for a loaded machine, not for a late rank.
constexpr milliseconds kConnectTimeout{1000};
// Gloo reads what a closed connection still holds; this only bounds a bug.
constexpr milliseconds kDrainTimeout{10000};
// All goodbyes together; they wait only for peers that have not yet finished
// forming.
constexpr milliseconds kGoodbyeTimeout{2000};

std::string Key(int rank) { return fmt::format("gloo/{}", rank); }

// Rank `reader`'s place in the list of rank `writer`, who leaves out itself.
int PlaceOf(int reader, int writer) {
  return reader > writer ? reader - 1 : reader;
}

// A value in the store: "LGM1 <rank> <size>\n" and size - 1 addresses.
std::string EncodeAddresses(int rank, int size,
                            const std::vector<Bytes>& ours) {
  std::string value = fmt::format("LGM1 {} {}\n", rank, size);
  for (int i = 0; i < size; ++i) value.append(ours[i].begin(), ours[i].end());
  return value;
}

// The address at which rank `writer` awaits rank `reader`.
StatusOr<Bytes> DecodeAddress(const std::string& value, int writer, int reader,
                              int size, size_t address_bytes) {
  const std::string head = fmt::format("LGM1 {} {}\n", writer, size);
  if (value.compare(0, head.size(), head) != 0) {
    return FailedPrecondition(
        "rank {} forms something else (\"{}\" instead of \"{}\")", writer,
        value.substr(0, std::min<size_t>(value.find('\n'), 40)),
        head.substr(0, head.size() - 1));
  }
  if (value.size() != head.size() + (size - 1) * address_bytes) {
    return FailedPrecondition(
        "rank {} has another version of Gloo: its addresses have {} bytes",
        writer, value.size() - head.size());
  }
  const auto begin =
      value.begin() + head.size() + PlaceOf(reader, writer) * address_bytes;
  return Bytes(begin, begin + address_bytes);
}

sockaddr_storage SocketAddress(const Bytes& address) {
  return gloo::transport::tcp::Address(address).getSockaddr();
}

Status CheckOptions(const CommunicatorOptions& options) {
  if (options.size > kMaxRanks) {
    return InvalidArgument(
        "{}: backend gloo connects every rank with every other and is refused "
        "above {} ranks, not used for {}",
        options.label, kMaxRanks, options.size);
  }
  const auto address = ParseAddress(options.bind_address);
  if (!address.ok()) return Annotate(address.status(), options.label);
  if (IsAnyAddress(*address)) {
    return InvalidArgument(
        "{}: the data plane is not bound to every address; give the one of the "
        "data network",
        options.label);
  }
  // Gloo tries it too, but leaks memory when it fails.
  LOCKSTEP_RETURN_IF_ERROR(Annotate(
      TryToBind(*address), fmt::format("{}: cannot bind to {}", options.label,
                                       options.bind_address)));
  struct sigaction action {};
  if (sigaction(SIGPIPE, nullptr, &action) != 0 ||
      action.sa_handler != SIG_IGN) {
    return FailedPrecondition(
        "{}: the program must ignore SIGPIPE, or the death of a peer kills it",
        options.label);
  }
  return OkStatus();
}

}  // namespace

GlooMesh::GlooMesh(int rank, int size)
    : Context(rank, size), peers_(size), connections_(size), sentinels_(size) {}

GlooMesh::~GlooMesh() {
  if (watch_.joinable()) {
    SayGoodbye();
    const uint64_t one = 1;
    (void)!write(stop_.get(), &one, sizeof(one));
    for (const auto& sentinel : sentinels_) {
      if (sentinel != nullptr) sentinel->abortWaitRecv();
    }
    watch_.join();
  }
  if (ticker_ == nullptr) return;
  // Each connection's end, and the loop's, waits for a turn of the loop.
  ticker_->Arm();
  sentinels_.clear();
  transportContext_.reset();
  inner_.reset();
  const std::weak_ptr<gloo::transport::Device> device = device_;
  device_.reset();
  if (const auto alive = device.lock()) ticker_->Detach(alive.get());
}

StatusOr<std::shared_ptr<GlooMesh>> GlooMesh::Form(
    const CommunicatorOptions& options) {
  LOCKSTEP_RETURN_IF_ERROR(CheckOptions(options));
  auto mesh = std::make_shared<GlooMesh>(options.rank, options.size);
  if (options.size == 1) return mesh;
  try {
    gloo::transport::tcp::attr attr(options.bind_address.c_str());
    mesh->device_ = gloo::transport::tcp::CreateDevice(attr);
  } catch (const std::exception& e) {
    return InvalidArgument("{}: cannot bind to {}: {}", options.label,
                           options.bind_address, e.what());
  }
  Status status;
  try {
    status = mesh->Connect(options);
  } catch (const std::exception& e) {
    status = Unavailable("forming failed: {}", e.what());
  }
  if (!status.ok()) return Annotate(status, options.label);
  return mesh;
}

StatusOr<std::vector<Bytes>> GlooMesh::ExchangeAddresses(
    const CommunicatorOptions& options) {
  std::vector<Bytes> ours(size);
  size_t address_bytes = 0;
  for (int i = 0; i < size; ++i) {
    if (i == rank) continue;
    auto& pair = inner_->createPair(i);
    pair->setLocalRank(0);
    ours[i] = pair->address().bytes();
    address_bytes = ours[i].size();
  }
  LOCKSTEP_RETURN_IF_ERROR(
      options.rendezvous->Put(Key(rank), EncodeAddresses(rank, size, ours)));
  std::vector<Bytes> theirs(size);
  std::string missing;
  for (int i = 0; i < size; ++i) {
    if (i == rank) continue;
    auto value = options.rendezvous->Get(Key(i), options.forming_deadline);
    if (value.status().code() == StatusCode::kDeadlineExceeded) {
      missing += fmt::format("{}{}", missing.empty() ? "" : ", ", i);
      continue;
    }
    if (!value.ok()) {
      return Annotate(value.status(),
                      fmt::format("asking for the address of rank {}", i));
    }
    LOCKSTEP_ASSIGN_OR_RETURN(
        theirs[i], DecodeAddress(*value, i, rank, size, address_bytes));
  }
  if (!missing.empty()) {
    return DeadlineExceeded("rank {} did not come before the forming deadline",
                            missing);
  }
  return theirs;
}

Status GlooMesh::Connect(const CommunicatorOptions& options) {
  ticker_ = std::make_unique<GlooTicker>(device_);
  inner_ = device_->createContext(rank, size);
  inner_->setTimeout(kConnectTimeout);
  transportContext_ = std::make_shared<TrackingContext>(inner_, &peers_);
  LOCKSTEP_ASSIGN_OR_RETURN(const std::vector<Bytes> theirs,
                            ExchangeAddresses(options));
  // Not before all have come, which may take minutes.
  ticker_->Arm();
  const Status connected = ConnectPairs(theirs);
  ticker_->Disarm();
  LOCKSTEP_RETURN_IF_ERROR(connected);
  for (int i = 0; i < size; ++i) {
    if (i == rank) continue;
    sentinels_[i] = inner_->createUnboundBuffer(nullptr, 0);
    sentinels_[i]->recv(i, kGoodbyeSlot, 0, 0);
  }
  stop_ = Fd(eventfd(0, EFD_CLOEXEC));
  if (!stop_) return ErrnoStatus(errno, "eventfd");
  watch_ = std::thread([this] { Watch(); });
  return OkStatus();
}

Status GlooMesh::ConnectPairs(const std::vector<Bytes>& theirs) {
  std::vector<Bytes> ours(size);
  for (int i = 0; i < size; ++i) {
    if (i == rank) continue;
    auto& pair = inner_->getPair(i);
    // Connecting changes the address.
    ours[i] = pair->address().bytes();
    try {
      pair->connect(theirs[i]);
    } catch (const std::exception& e) {
      return Unavailable("cannot connect to rank {}: {}", i, e.what());
    }
  }
  return FindConnections(ours, theirs);
}

Status GlooMesh::FindConnections(const std::vector<Bytes>& ours,
                                 const std::vector<Bytes>& theirs) {
  const std::vector<int> sockets = OpenSockets();
  for (int i = 0; i < size; ++i) {
    if (i == rank) continue;
    const sockaddr_storage our_end = SocketAddress(ours[i]);
    const sockaddr_storage their_end = SocketAddress(theirs[i]);
    const bool we_connected = CompareAddresses(our_end, their_end) > 0;
    const auto is_it = [&](int fd) {
      SocketEnds ends;
      if (!GetEnds(fd, &ends)) return false;
      return we_connected ? CompareAddresses(ends.remote, their_end) == 0
                          : CompareAddresses(ends.local, our_end) == 0;
    };
    for (const int fd : sockets) {
      if (!is_it(fd)) continue;
      Fd copy(fcntl(fd, F_DUPFD_CLOEXEC, 0));
      // Gloo may have closed `fd`, and another thread opened it, meanwhile.
      if (!copy || !is_it(copy.get())) continue;
      fcntl(fd, F_SETFD, FD_CLOEXEC);
      connections_[i] = std::move(copy);
      break;
    }
    if (!connections_[i]) {
      return Unavailable("rank {} closed its connection while forming", i);
    }
  }
  return OkStatus();
}

void GlooMesh::Watch() {
  std::vector<pollfd> polls;
  for (const Fd& fd : connections_) {
    polls.push_back({.fd = fd.get(), .events = POLLRDHUP, .revents = 0});
  }
  polls.push_back({.fd = stop_.get(), .events = POLLIN, .revents = 0});
  while (polls.back().revents == 0 && !peers_.IsCut()) {
    if (poll(polls.data(), polls.size(), -1) < 0) continue;
    for (int i = 0; i < size; ++i) {
      if (polls[i].fd < 0 || polls[i].revents == 0) continue;
      polls[i].fd = -1;
      // Gloo reads in order: a goodbye has come before it sees the end.
      bool goodbye = false;
      try {
        goodbye = sentinels_[i]->waitRecv(nullptr, kDrainTimeout);
      } catch (const std::exception&) {
      }
      goodbye ? peers_.SetGone(i) : peers_.SetLost(i);
    }
  }
}

void GlooMesh::SayGoodbye() {
  if (peers_.IsCut() || peers_.lost() >= 0) return;
  TrackedBuffer goodbye(inner_, &peers_, nullptr, 0);
  const MonoTime deadline = MonotonicNow() + kGoodbyeTimeout;
  // A peer that has just left itself fails alone: the others, who may still be
  // busy with each other, are told all the same.
  std::vector<bool> sent(size, false);
  for (int i = 0; i < size; ++i) {
    if (i == rank || peers_.IsGone(i)) continue;
    try {
      goodbye.send(i, kGoodbyeSlot, 0, 0);
      sent[i] = true;
    } catch (const std::exception&) {
    }
  }
  for (int i = 0; i < size; ++i) {
    try {
      if (sent[i]) goodbye.FinishSend(i, deadline);
    } catch (const std::exception&) {
    }
  }
}

void GlooMesh::Cut() {
  if (!peers_.SetCut()) return;
  for (const auto& sentinel : sentinels_) {
    if (sentinel != nullptr) sentinel->abortWaitRecv();
  }
  for (const Fd& fd : connections_) {
    if (fd) ::shutdown(fd.get(), SHUT_RDWR);
  }
}

}  // namespace lockstep
