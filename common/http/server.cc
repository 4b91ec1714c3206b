#include "common/http/server.h"

#include <httplib.h>
#include <poll.h>

#include <algorithm>
#include <atomic>
#include <deque>
#include <thread>
#include <utility>
#include <vector>

#include "common/base/fd.h"
#include "common/base/host_port.h"
#include "common/base/logging.h"
#include "common/base/mutex.h"
#include "common/http/basic_auth.h"
#include "common/http/host_check.h"

namespace lockstep {
namespace {

constexpr int kBacklog = 128;
// Nothing here takes a body.
constexpr size_t kMaxBody = 4096;

// httplib's own queues connections without bound, each a file descriptor. When
// this one is full the thread that accepts waits, and the kernel queues.
class BoundedPool final : public httplib::TaskQueue {
 public:
  explicit BoundedPool(int threads) : limit_(static_cast<size_t>(threads)) {
    for (int i = 0; i < threads; ++i) {
      threads_.emplace_back([this] { Run(); });
    }
  }

  void enqueue(std::function<void()> task) override {
    MutexLock lock(&mu_);
    while (tasks_.size() >= limit_ && !stopping_) changed_.Wait(&mu_);
    tasks_.push_back(std::move(task));
    changed_.NotifyAll();
  }

  void shutdown() override {
    {
      MutexLock lock(&mu_);
      stopping_ = true;
      changed_.NotifyAll();
    }
    for (std::thread& thread : threads_) thread.join();
  }

 private:
  // Each task holds a socket that only it closes: all of them are run.
  void Run() {
    for (;;) {
      std::function<void()> task;
      {
        MutexLock lock(&mu_);
        while (tasks_.empty() && !stopping_) changed_.Wait(&mu_);
        if (tasks_.empty()) return;
        task = std::move(tasks_.front());
        tasks_.pop_front();
        changed_.NotifyAll();
      }
      task();
    }
  }

  const size_t limit_;
  Mutex mu_;
  CondVar changed_;
  std::deque<std::function<void()>> tasks_ ABSL_GUARDED_BY(mu_);
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  std::vector<std::thread> threads_;
};

// A connection as httplib reads and writes it.
class ConnectionStream final : public httplib::Stream {
 public:
  explicit ConnectionStream(Connection* connection) : connection_(connection) {}

  // httplib asks these only of bodies that come in pieces; a wait is Read's
  // and Write's own.
  bool is_readable() const override { return true; }
  bool is_writable() const override { return true; }
  ssize_t read(char* to, size_t size) override {
    return connection_->Read(to, size);
  }
  ssize_t write(const char* bytes, size_t size) override {
    return connection_->Write({bytes, size}) ? static_cast<ssize_t>(size) : -1;
  }
  // Nobody asks who it was.
  void get_remote_ip_and_port(std::string&, int&) const override {}
  void get_local_ip_and_port(std::string&, int&) const override {}
  socket_t socket() const override { return connection_->fd(); }

 private:
  Connection* const connection_;
};

// httplib's parsing, routing, compressing and accepting; our connections.
class Server final : public httplib::Server {
 public:
  Server(SslContext context, const ConnectionLimits& limits)
      : context_(std::move(context)), limits_(limits) {}

  // All but the listener, which is stop()'s.
  void StopConnections() { connections_.Stop(); }

 private:
  // One request: an idle connection would hold a thread.
  bool process_and_close_socket(socket_t socket) override {
    const Fd fd(socket);
    if (!connections_.Add(fd.get())) return false;
    bool done = false;
    {
      Connection connection(fd.get(), context_.get(), &connections_, limits_);
      ConnectionStream stream(&connection);
      bool closed = true;
      done =
          connection.Accept() &&
          process_request(stream, /*close_connection=*/true, closed, nullptr);
    }
    connections_.Remove(fd.get());
    return done;
  }

  const SslContext context_;
  const ConnectionLimits limits_;
  OpenConnections connections_;
};

struct Handlers {
  const HttpServer::Handler* Find(const std::string& path) const {
    const auto exact = paths.find(path);
    if (exact != paths.end()) return &exact->second;
    const HttpServer::Handler* best = nullptr;
    // In order, so that the last that matches is the longest.
    for (const auto& [prefix, handler] : prefixes) {
      if (path.starts_with(prefix)) best = &handler;
    }
    return best;
  }

  std::map<std::string, HttpServer::Handler> paths;
  std::map<std::string, HttpServer::Handler> prefixes;
};

// Null `hosts`: by any name.
HttpResponse Answer(const Handlers& handlers, HostCheck* hosts, BasicAuth* auth,
                    const httplib::Request& request,
                    httplib::Response* response) {
  if (hosts != nullptr && !hosts->Admits(request.get_header_value("Host"))) {
    return {421, "text/plain; charset=utf-8",
            "this server is asked by its address, as localhost, or by the name "
            "of its machine, and by no other name\n"};
  }
  if (!auth->Admits(request.get_header_value("Authorization"))) {
    response->set_header("WWW-Authenticate", "Basic realm=\"lockstep\"");
    return {401, "text/plain; charset=utf-8", "a name and password, please\n"};
  }
  if (request.method != "GET" && request.method != "HEAD") {
    response->set_header("Allow", "GET, HEAD");
    return {405, "text/plain; charset=utf-8", "only GET and HEAD\n"};
  }
  // httplib would copy the body once for each range that is asked for.
  if (!request.ranges.empty()) {
    return {416, "text/plain; charset=utf-8", ""};
  }
  const HttpServer::Handler* const handler = handlers.Find(request.path);
  if (handler == nullptr) {
    return {404, "text/plain; charset=utf-8", "no such page\n"};
  }
  HttpRequest ours;
  ours.path = request.path;
  for (const auto& [name, value] : request.params) {
    ours.query.emplace(name, value);
  }
  ours.host = request.get_header_value("Host");
  return (*handler)(ours);
}

// `listener` is set to the listening socket when it is made.
void Configure(const HttpServerOptions& options, const Handlers* handlers,
               HostCheck* hosts, BasicAuth* auth, int* listener,
               httplib::Server* server) {
  const int threads = std::max(options.threads, 1);
  server->new_task_queue = [threads] { return new BoundedPool(threads); };
  // Without SO_REUSEPORT, which httplib sets: a second daemon on the same port
  // would answer half of the requests instead of being refused.
  server->set_socket_options([listener](int socket) {
    const int yes = 1;
    ::setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
    *listener = socket;
  });
  server->set_payload_max_length(kMaxBody);
  server->set_tcp_nodelay(true);
  server->set_default_headers(
      {{"X-Content-Type-Options", "nosniff"}, {"Cache-Control", "no-store"}});
  // Before httplib's own routing: that matches paths by std::regex, which
  // recurses once for each character of a stranger's path.
  server->set_pre_routing_handler([handlers, hosts, auth](
                                      const httplib::Request& request,
                                      httplib::Response& response) {
    HttpResponse answer = Answer(*handlers, hosts, auth, request, &response);
    response.status = answer.status;
    for (const auto& [name, value] : answer.headers) {
      response.set_header(name, value);
    }
    response.set_content(std::move(answer.body), answer.content_type);
    return httplib::Server::HandlerResponse::Handled;
  });
  // httplib would send the exception's text in a header.
  server->set_exception_handler([](const httplib::Request&,
                                   httplib::Response& response,
                                   std::exception_ptr) {
    response.status = 500;
    response.set_content("internal error\n", "text/plain; charset=utf-8");
  });
}

StatusOr<std::unique_ptr<Server>> MakeServer(const HttpServerOptions& options,
                                             const HostPort& address) {
  SslContext context;
  if (options.web.tls) {
    LOCKSTEP_ASSIGN_OR_RETURN(context, MakeSslContext(*options.web.tls));
  } else if (!IsLoopback(address.host)) {
    return InvalidArgument(
        "HTTP without TLS is for this machine only, and others can reach {}: "
        "listen on 127.0.0.1, or give a web configuration with "
        "tls_server_config",
        options.address);
  }
  return std::make_unique<Server>(std::move(context), options.limits);
}

}  // namespace

struct HttpServer::State {
  HttpServerOptions options;
  HostPort address;
  std::string bound;
  int listener = -1;  // httplib's.
  Handlers handlers;
  // Null where others reach it: see host_check.h.
  std::unique_ptr<HostCheck> hosts;
  std::unique_ptr<BasicAuth> auth;
  std::unique_ptr<Server> server;
  std::thread thread;
  std::atomic<bool> ended = false;
};

HttpServer::HttpServer(std::unique_ptr<State> state)
    : state_(std::move(state)) {}

StatusOr<std::unique_ptr<HttpServer>> HttpServer::Create(
    const HttpServerOptions& options) {
  auto state = std::make_unique<State>();
  state->options = options;
  LOCKSTEP_ASSIGN_OR_RETURN(state->address, ParseHostPort(options.address));
  LOCKSTEP_ASSIGN_OR_RETURN(state->server, MakeServer(options, state->address));
  state->auth = std::make_unique<BasicAuth>(options.web.users);
  if (IsLoopback(state->address.host)) {
    state->hosts = std::make_unique<HostCheck>(state->address.host,
                                               MachineName(), FullMachineName);
  }
  Configure(options, &state->handlers, state->hosts.get(), state->auth.get(),
            &state->listener, state->server.get());
  return std::unique_ptr<HttpServer>(new HttpServer(std::move(state)));
}

HttpServer::~HttpServer() {
  if (!state_->thread.joinable()) return;
  // httplib's stop() does nothing before the thread has come to accept.
  while (!state_->server->is_running() && !state_->ended) {
    ::poll(nullptr, 0, 1);
  }
  // First: the thread that accepts may wait for one that serves.
  state_->server->StopConnections();
  state_->server->stop();
  state_->thread.join();
}

void HttpServer::Handle(const std::string& path, Handler handler) {
  state_->handlers.paths[path] = std::move(handler);
}

void HttpServer::HandlePrefix(const std::string& prefix, Handler handler) {
  state_->handlers.prefixes[prefix] = std::move(handler);
}

Status HttpServer::Start() {
  HostPort& address = state_->address;
  bool bound;
  if (address.port == 0) {
    const int port = state_->server->bind_to_any_port(address.host);
    bound = port > 0;
    if (bound) address.port = static_cast<uint16_t>(port);
  } else {
    bound = state_->server->bind_to_port(address.host, address.port);
  }
  if (!bound) {
    return Unavailable(
        "cannot listen on {}: is the address of this machine, and the port "
        "free?",
        state_->options.address);
  }
  // httplib lets 5 connections wait; the sixth would be dropped and tried again
  // a second later. On Linux a second listen(2) only changes that number.
  ::listen(state_->listener, kBacklog);
  state_->bound = FormatHostPort(address);
  state_->thread = std::thread([state = state_.get()] {
    if (!state->server->listen_after_bind()) {
      LOG_ERROR("http: no longer answers on {}", state->bound);
    }
    state->ended = true;
  });
  return OkStatus();
}

const std::string& HttpServer::address() const { return state_->bound; }

int HttpServer::port() const { return state_->address.port; }

bool HttpServer::tls() const { return state_->options.web.tls.has_value(); }

}  // namespace lockstep
