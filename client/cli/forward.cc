#include "client/cli/forward.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <list>
#include <memory>
#include <ostream>
#include <thread>

#include "client/cli/cli.h"
#include "client/cli/find.h"
#include "client/cli/session_io.h"
#include "common/base/mutex.h"

namespace lockstep::cli {
namespace {

constexpr size_t kPiece = 32 << 10;

struct ForwardFlags {
  std::string name;
  std::vector<std::string> ports;
  int32_t rank = 0;
  std::string address = "127.0.0.1";
};

// One line on stderr at a time.
class Notes {
 public:
  explicit Notes(std::ostream* err) : err_(err) {}
  void Print(const std::string& text) {
    MutexLock lock(&mu_);
    *err_ << text << "\n" << std::flush;
  }

 private:
  Mutex mu_;
  std::ostream* const err_;
};

v1::SessionRequest RequestFor(const ForwardTarget& target, int32_t port) {
  v1::SessionRequest request;
  request.set_name(target.job);
  request.set_rank(target.rank);
  request.mutable_port()->set_port(port);
  return request;
}

bool WriteAll(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t n = send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    bytes.remove_prefix(static_cast<size_t>(n));
  }
  return true;
}

// One connection, with a thread for each direction.
class Connection {
 public:
  Connection(Fd fd, std::unique_ptr<Session> session, std::string where,
             Notes* notes)
      : fd_(std::move(fd)),
        session_(std::move(session)),
        where_(std::move(where)),
        notes_(notes),
        up_([this] { Up(); }),
        down_([this] { Down(); }) {}
  ~Connection() {
    session_->Cancel();
    shutdown(fd_.get(), SHUT_RDWR);
    up_.join();
    down_.join();
  }
  bool over() const { return over_; }

 private:
  void Up() {
    std::string buffer(kPiece, '\0');
    for (;;) {
      const ssize_t n = recv(fd_.get(), buffer.data(), buffer.size(), 0);
      if (n < 0 && errno == EINTR) continue;
      v1::SessionInput message;
      if (n > 0) {
        message.set_data(buffer.substr(0, static_cast<size_t>(n)));
      } else {
        message.set_end_of_data(true);
      }
      if (!session_->Write(message) || n <= 0) return;
    }
  }
  void Down() {
    v1::SessionOutput output;
    std::string why;
    while (session_->Read(&output)) {
      if (output.has_data() && !WriteAll(fd_.get(), output.data())) {
        session_->Cancel();
      }
      if (output.has_error_data()) why += output.error_data();
      if (output.has_end() && !output.end().message().empty()) {
        why = output.end().message();
      }
    }
    const Status status = session_->Finish();
    if (!status.ok() && status.code() != StatusCode::kCancelled) {
      why = Message(status);
    }
    if (!why.empty()) {
      notes_->Print(fmt::format("lockstep: {}: {}", where_, Printable(why)));
    }
    shutdown(fd_.get(), SHUT_RDWR);
    over_ = true;
  }

  const Fd fd_;
  const std::unique_ptr<Session> session_;
  const std::string where_;
  Notes* const notes_;
  std::atomic<bool> over_ = false;
  std::thread up_;  // Last: they use the others.
  std::thread down_;
};

StatusOr<Fd> ListenOn(const std::string& address, int32_t port, int32_t* got) {
  sockaddr_storage storage{};
  socklen_t size = 0;
  auto* const v4 = reinterpret_cast<sockaddr_in*>(&storage);
  auto* const v6 = reinterpret_cast<sockaddr_in6*>(&storage);
  if (inet_pton(AF_INET, address.c_str(), &v4->sin_addr) == 1) {
    v4->sin_family = AF_INET;
    v4->sin_port = htons(static_cast<uint16_t>(port));
    size = sizeof(*v4);
  } else if (inet_pton(AF_INET6, address.c_str(), &v6->sin6_addr) == 1) {
    v6->sin6_family = AF_INET6;
    v6->sin6_port = htons(static_cast<uint16_t>(port));
    size = sizeof(*v6);
  } else {
    return InvalidArgument("--listen {} is not an IP address",
                           Printable(address));
  }
  Fd fd(
      socket(storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const int on = 1;
  setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  auto* const generic = reinterpret_cast<sockaddr*>(&storage);
  if (bind(fd.get(), generic, size) != 0 || listen(fd.get(), 64) != 0) {
    return Annotate(
        ErrnoStatus(errno, fmt::format("listening on {}:{}", address, port)),
        "choose another local port, as " +
            fmt::format("{}:{}", port + 1, port));
  }
  getsockname(fd.get(), generic, &size);
  *got = ntohs(storage.ss_family == AF_INET ? v4->sin_port : v6->sin6_port);
  return fd;
}

// Returns why the port does not answer, or "". Errors: no session is possible.
StatusOr<std::string> Probe(Client* client, const ForwardTarget& target,
                            int32_t port) {
  const auto session = OpenSession(client, RequestFor(target, port));
  v1::SessionInput end;
  end.set_end_of_data(true);
  (void)session->Write(end);
  v1::SessionOutput output;
  std::string why;
  bool started = false;
  while (session->Read(&output)) {
    started |= output.has_started();
    if (output.has_error_data()) why += output.error_data();
    if (output.has_end() && output.end().not_started()) {
      return FailedPrecondition("{}", output.end().message());
    }
    // It listens, and may keep the connection.
    if (output.has_data()) session->Cancel();
  }
  const Status status = session->Finish();
  if (started) return why;
  return status.ok() ? Unavailable("the session ended without a result")
                     : status;
}

StatusOr<int> RunForward(const Cli& cli, const ForwardFlags& options) {
  ForwardTarget target;
  target.rank = options.rank;
  target.address = options.address;
  for (const std::string& text : options.ports) {
    LOCKSTEP_ASSIGN_OR_RETURN(const PortPair pair, ParsePortPair(text));
    target.ports.push_back(pair);
  }
  HeldSignals held;
  LOCKSTEP_ASSIGN_OR_RETURN(const auto client, cli.Connect());
  LOCKSTEP_ASSIGN_OR_RETURN(target.job, FindJob(client.get(), options.name));
  return Forward(cli, client.get(), target, &held);
}

}  // namespace

StatusOr<PortPair> ParsePortPair(const std::string& text) {
  const size_t colon = text.find(':');
  const auto parse = [](const std::string& digits) -> int32_t {
    if (digits.empty() || digits.size() > 5 ||
        digits.find_first_not_of("0123456789") != std::string::npos) {
      return -1;
    }
    return std::stoi(digits);
  };
  PortPair pair;
  pair.remote = parse(colon == text.npos ? text : text.substr(colon + 1));
  pair.local = pair.remote;
  if (colon == 0) {
    pair.local = 0;
  } else if (colon != text.npos) {
    pair.local = parse(text.substr(0, colon));
  }
  if (pair.remote < 1 || pair.remote > 65535 || pair.local < 0 ||
      pair.local > 65535) {
    return InvalidArgument(
        "\"{}\" is not a port: give PORT, LOCAL:PORT, or :PORT for any local "
        "one",
        Printable(text));
  }
  return pair;
}

StatusOr<bool> Answers(Client* client, const ForwardTarget& target,
                       int32_t port) {
  LOCKSTEP_ASSIGN_OR_RETURN(const std::string why, Probe(client, target, port));
  return why.empty();
}

StatusOr<int> Forward(const Cli& cli, Client* client,
                      const ForwardTarget& target, HeldSignals* held) {
  Notes notes(cli.env->err);
  std::vector<Fd> listeners;
  for (const PortPair& pair : target.ports) {
    int32_t local = 0;
    LOCKSTEP_ASSIGN_OR_RETURN(Fd listener,
                              ListenOn(target.address, pair.local, &local));
    LOCKSTEP_ASSIGN_OR_RETURN(const std::string why,
                              Probe(client, target, pair.remote));
    if (!why.empty()) {
      notes.Print(
          fmt::format("port {} of rank {}: {}; it is tried again with "
                      "each connection",
                      pair.remote, target.rank, Printable(why)));
    }
    listeners.push_back(std::move(listener));
    *cli.env->out << fmt::format("{}:{} -> port {} of rank {} of {}\n",
                                 target.address, local, pair.remote,
                                 target.rank, target.job)
                  << std::flush;
  }
  std::list<Connection> connections;
  for (;;) {
    std::vector<pollfd> fds = {{held->fd(), POLLIN, 0}};
    for (const Fd& listener : listeners) {
      fds.push_back({listener.get(), POLLIN, 0});
    }
    // The timeout is for connections that have ended.
    const int ready = poll(fds.data(), fds.size(), 1000);
    connections.remove_if([](const Connection& c) { return c.over(); });
    if (ready <= 0) continue;
    if (fds[0].revents != 0) {
      const int signo = held->Take();
      if (signo != 0 && signo != SIGWINCH) return 128 + signo;
    }
    for (size_t i = 0; i < listeners.size(); ++i) {
      if (fds[i + 1].revents == 0) continue;
      Fd fd(accept4(listeners[i].get(), nullptr, nullptr, SOCK_CLOEXEC));
      if (!fd) continue;
      const int32_t port = target.ports[i].remote;
      connections.emplace_back(
          std::move(fd), OpenSession(client, RequestFor(target, port)),
          fmt::format("port {} of rank {}", port, target.rank), &notes);
    }
  }
}

Command ForwardCommand(Cli* cli) {
  const auto options = std::make_shared<ForwardFlags>();
  Command command = LeafCommand(
      "forward", "Reach TCP ports of a running rank from this machine",
      "  lockstep forward fashion 6006\n"
      "  lockstep forward fashion 8080:80 :8888 --rank 3\n\n"
      "PORT or LOCAL:PORT; without LOCAL (:PORT) a free one is taken and\n"
      "printed. Each connection becomes one to the rank's loopback address,\n"
      "made with the rank's rights in its network, through the coordinator.\n"
      "It goes on until Ctrl-C. For the job's owner and admins; the audit\n"
      "log has each connection.");
  AddJobArgument(&command, &options->name);
  command.Add("ports PORT", &options->ports, "PORT, LOCAL:PORT or :PORT",
              Required);
  command.Add("--rank R", &options->rank, "The rank", AtLeast(0), ShowDefault);
  command.Add("--listen IP", &options->address,
              "Address to listen on; others than loopback let anybody who "
              "reaches this machine use the port",
              ShowDefault);
  AddConnectionOptions(&command, cli);
  command.run = [=] { return RunForward(*cli, *options); };
  return command;
}

}  // namespace lockstep::cli
