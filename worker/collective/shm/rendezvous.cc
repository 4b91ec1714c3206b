#include "worker/collective/shm/rendezvous.h"

#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>
#include <thread>

#include "common/base/random.h"
#include "worker/collective/lost_peers.h"
#include "worker/collective/shm/acceptor.h"
#include "worker/collective/shm/handshake.h"

namespace lockstep::worker::collective::shm {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr Duration kConnecting = seconds(5);

sockaddr_un AddressOf(const std::string& name, socklen_t* size) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  // A leading zero: abstract, no file.
  std::memcpy(address.sun_path + 1, name.data(), name.size());
  *size =
      static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  return address;
}

class Rendezvous {
 public:
  explicit Rendezvous(const CommunicatorOptions& options)
      : options_(options), me_(options.rank), size_(options.size) {}

  StatusOr<Group> Run() {
    group_.members.resize(size_);
    LOCKSTEP_ASSIGN_OR_RETURN(own().segment, Segment::Create(size_, &file_));
    if (options_.addresses != nullptr) {
      LOCKSTEP_RETURN_IF_ERROR(
          own().segment.MoveArenaTo(options_.addresses, file_.get()));
    }
    hello_ = MakeHello(me_, size_, own().segment.bytes());
    PublishProcessors();
    if (size_ > 1) {
      LOCKSTEP_RETURN_IF_ERROR(Listen());
      LOCKSTEP_RETURN_IF_ERROR(FindNames());
      deadline_ = MonotonicNow() + kConnecting;
      for (int rank = 0; rank < me_; ++rank) {
        LOCKSTEP_RETURN_IF_ERROR(
            Annotate(Connect(rank), fmt::format("rank {}", rank)));
      }
      LOCKSTEP_RETURN_IF_ERROR(Accept());
      LOCKSTEP_RETURN_IF_ERROR(Conclude());
    }
    group_.processors = CountProcessors();
    return std::move(group_);
  }

 private:
  Member& own() { return group_.members[me_]; }

  Status Listen() {
    listener_ =
        Fd(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (!listener_) return ErrnoStatus(errno, "opening a Unix socket");
    name_ = "lockstep-" + RandomHex(16);
    socklen_t length = 0;
    const sockaddr_un address = AddressOf(name_, &length);
    if (bind(listener_.get(), reinterpret_cast<const sockaddr*>(&address),
             length) != 0 ||
        listen(listener_.get(), 2 * kMaxRanks) != 0) {
      return ErrnoStatus(errno, "listening on a Unix socket");
    }
    return OkStatus();
  }

  static std::string KeyOf(int rank) { return fmt::format("shm/{}", rank); }

  Status FindNames() {
    const std::string prefix = fmt::format("LSHM1 {} ", size_);
    LOCKSTEP_RETURN_IF_ERROR(
        options_.rendezvous->Put(KeyOf(me_), prefix + name_));
    names_.resize(size_);
    std::string missing;
    for (int rank = 0; rank < size_; ++rank) {
      if (rank == me_) continue;
      // After the deadline this only looks, to name all that are missing.
      auto value =
          options_.rendezvous->Get(KeyOf(rank), options_.forming_deadline);
      if (absl::IsDeadlineExceeded(value.status())) {
        missing += fmt::format("{}{}", missing.empty() ? "" : ", ", rank);
        continue;
      }
      LOCKSTEP_RETURN_IF_ERROR(value.status());
      if (!value->starts_with(prefix) ||
          value->size() != prefix.size() + name_.size()) {
        return FailedPrecondition(
            "rank {} wrote no address of this version for {} ranks", rank,
            size_);
      }
      names_[rank] = value->substr(prefix.size());
    }
    if (missing.empty()) return OkStatus();
    return DeadlineExceeded("rank {} did not come before the deadline",
                            missing);
  }

  static Status Unreached(int rank, std::string_view why) {
    return WithLostPeers(Unavailable("{}", why), {rank});
  }

  // Waits for one message of a rank that we connected to.
  template <typename T>
  Status Receive(int rank, int socket, T* message, Fd* file) {
    for (;;) {
      bool nothing = false;
      LOCKSTEP_RETURN_IF_ERROR(
          ReceiveMessage(socket, message, sizeof(T), file, &nothing));
      if (!nothing) return OkStatus();
      if (MonotonicNow() >= deadline_) {
        return Unreached(rank, "it does not answer while forming");
      }
      pollfd wait{socket, POLLIN, 0};
      poll(&wait, 1, PollMillis(MonotonicNow(), deadline_));
    }
  }

  Status Connect(int rank) {
    Fd fd(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (!fd) return ErrnoStatus(errno, "opening a Unix socket");
    socklen_t length = 0;
    const sockaddr_un address = AddressOf(names_[rank], &length);
    while (connect(fd.get(), reinterpret_cast<const sockaddr*>(&address),
                   length) != 0) {
      if ((errno == EAGAIN || errno == EINTR) && MonotonicNow() < deadline_) {
        std::this_thread::sleep_for(milliseconds(1));
        continue;
      }
      return Unreached(
          rank,
          fmt::format("it went away while forming, or is not on this host ({})",
                      std::strerror(errno)));
    }
    LOCKSTEP_ASSIGN_OR_RETURN(const pid_t pid, ProcessOf(fd.get()));
    LOCKSTEP_RETURN_IF_ERROR(SendMessage(fd.get(), &hello_, sizeof(hello_)));
    Answer answer{};
    Fd file;
    LOCKSTEP_RETURN_IF_ERROR(Receive(rank, fd.get(), &answer, &file));
    LOCKSTEP_RETURN_IF_ERROR(CheckHello(answer.hello, size_));
    if (answer.hello.rank != static_cast<uint32_t>(rank)) {
      return FailedPrecondition("it says that it is rank {}",
                                answer.hello.rank);
    }
    // Sent also to one with another key: so it learns as well.
    const bool known =
        EqualMacs(answer.proof,
                  Prove(options_.key, Role::kAccepts, hello_, answer.hello));
    const Proof proof =
        Prove(options_.key, Role::kConnects, hello_, answer.hello);
    LOCKSTEP_RETURN_IF_ERROR(SendMessage(fd.get(), proof.data(), proof.size(),
                                         known ? file_.get() : -1));
    if (!known) return WrongKey(rank, me_);
    char welcome = 0;
    LOCKSTEP_RETURN_IF_ERROR(Receive(rank, fd.get(), &welcome, &file));
    return Admit(rank, answer.hello, std::move(fd), pid, std::move(file));
  }

  Status Admit(int rank, const Hello& hello, Fd socket, pid_t pid, Fd file) {
    Member& member = group_.members[rank];
    if (!file) return FailedPrecondition("it sent no shared memory");
    LOCKSTEP_ASSIGN_OR_RETURN(member.segment,
                              Segment::Map(file.get(), hello.segment_bytes));
    LOCKSTEP_RETURN_IF_ERROR(member.segment.Populate(0, sizeof(Control)));
    member.process = OpenProcess(socket.get(), pid);
    member.socket = std::move(socket);
    return OkStatus();
  }

  bool IsIn(int rank) const {
    return static_cast<bool>(group_.members[rank].socket);
  }

  // Higher ranks that have not come in.
  std::vector<int> Missing() const {
    std::vector<int> missing;
    for (int rank = me_ + 1; rank < size_; ++rank) {
      if (!IsIn(rank)) missing.push_back(rank);
    }
    return missing;
  }

  // Lets all higher ranks in.
  Status Accept() {
    Acceptor acceptor({.key = options_.key,
                       .hello = hello_,
                       .memory = file_.get(),
                       .expects =
                           [this](int64_t rank) {
                             return rank > me_ && rank < size_ &&
                                    !IsIn(static_cast<int>(rank));
                           }},
                      std::move(listener_));
    while (!Missing().empty()) {
      LOCKSTEP_ASSIGN_OR_RETURN(std::vector<Peer> peers,
                                acceptor.Receive(deadline_));
      if (peers.empty()) {
        const std::vector<int> missing = Missing();
        return WithLostPeers(Unavailable("rank {} went away while forming",
                                         fmt::join(missing, ", ")),
                             missing);
      }
      for (Peer& peer : peers) {
        LOCKSTEP_RETURN_IF_ERROR(
            Annotate(Admit(peer.rank, peer.hello, std::move(peer.socket),
                           peer.pid, std::move(peer.file)),
                     fmt::format("rank {}", peer.rank)));
      }
    }
    return OkStatus();
  }

  // Tells all that this rank has mapped them, and waits until all have told.
  Status Conclude() {
    file_.Reset();
    own().segment.control()->ready.store(1, std::memory_order_release);
    for (int rank = 0; rank < size_; ++rank) {
      if (rank != me_) LOCKSTEP_RETURN_IF_ERROR(AwaitReady(rank));
    }
    return OkStatus();
  }

  Status AwaitReady(int rank) {
    const Member& member = group_.members[rank];
    const Shared<uint32_t>& ready = member.segment.control()->ready;
    while (ready.load(std::memory_order_acquire) == 0) {
      // It says nothing here but by going away, before or after it was ready.
      pollfd wait{member.socket.get(), POLLIN | POLLRDHUP, 0};
      if ((poll(&wait, 1, 0) > 0 || MonotonicNow() >= deadline_) &&
          ready.load(std::memory_order_acquire) == 0) {
        return Unavailable("rank {} went away while forming", rank);
      }
      std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
    return OkStatus();
  }

  void PublishProcessors() {
    cpu_set_t set;
    CPU_ZERO(&set);
    if (sched_getaffinity(0, sizeof(set), &set) != 0) CPU_SET(0, &set);
    Control* const control = own().segment.control();
    for (int cpu = 0; cpu < static_cast<int>(kProcessorWords * 64); ++cpu) {
      if (!CPU_ISSET(cpu, &set)) continue;
      control->processors[cpu / 64].fetch_or(uint64_t{1} << (cpu % 64),
                                             std::memory_order_relaxed);
    }
  }

  int CountProcessors() const {
    int count = 0;
    for (size_t word = 0; word < kProcessorWords; ++word) {
      uint64_t all = 0;
      for (const Member& member : group_.members) {
        all |= member.segment.control()->processors[word].load(
            std::memory_order_relaxed);
      }
      count += __builtin_popcountll(all);
    }
    return count;
  }

  const CommunicatorOptions& options_;
  const int me_;
  const int size_;
  Group group_;
  Hello hello_{};
  Fd file_;  // of our segment
  Fd listener_;
  std::string name_;
  std::vector<std::string> names_;
  MonoTime deadline_;
};

}  // namespace

StatusOr<Group> FormGroup(const CommunicatorOptions& options) {
  auto group = Rendezvous(options).Run();
  if (!group.ok()) return Annotate(group.status(), options.label);
  return group;
}

}  // namespace lockstep::worker::collective::shm
