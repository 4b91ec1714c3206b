#include "common/http/server.h"

#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <map>
#include <optional>
#include <set>
#include <utility>

#include "common/base/fd.h"
#include "common/base/host_port.h"
#include "common/base/logging.h"
#include "common/http/access.h"
#include "common/http/engine.h"
#include "common/http/host_check.h"
#include "common/http/target.h"
#include "common/http/tls.h"

namespace lockstep::http {
namespace {

// New connections get a place at once (engine.h); this covers short bursts.
constexpr int kBacklog = 1024;

struct Handlers {
  const HttpServer::Handler* Find(const std::string& path) const {
    const auto exact = paths.find(path);
    if (exact != paths.end()) return &exact->second;
    const HttpServer::Handler* best = nullptr;
    // Sorted, so the last match is the longest.
    for (const auto& [prefix, handler] : prefixes) {
      if (path.starts_with(prefix)) best = &handler;
    }
    return best;
  }

  std::map<std::string, HttpServer::Handler> paths;
  std::map<std::string, HttpServer::Handler> prefixes;
  std::map<std::string, HttpServer::Handler> at_once;
  // Paths that need no credentials.
  std::set<std::string> open;
};

HttpResponse Text(int status, std::string body) {
  return {.status = status, .body = std::move(body)};
}

bool IsRead(const HttpHead& head) {
  return head.method == "GET" || head.method == "HEAD";
}

// Returns nullopt if a handler thread must answer.
std::optional<HttpResponse> AnswerAtOnce(const Handlers& handlers,
                                         const HttpHead& head) {
  const auto handler = handlers.at_once.find(head.target);
  if (handler == handlers.at_once.end() || !IsRead(head)) return std::nullopt;
  return handler->second({.path = head.target, .query = {}, .host = head.host});
}

// A null `hosts` accepts any name.
HttpResponse Answer(const Handlers& handlers, HostCheck* hosts, Access* access,
                    const HttpHead& head) {
  if (hosts != nullptr && !hosts->Admits(head.host)) {
    return Text(
        421,
        "this server answers only to its address, to localhost and to the "
        "name of its machine\n");
  }
  StatusOr<HttpTarget> target = ParseHttpTarget(head.target);
  const bool open = target.ok() && handlers.open.contains(target->path);
  if (target.ok() && access->IsLogin(head, target->path)) {
    return access->LogIn(*target);
  }
  if (!open && !access->Admits(head)) return access->Refuse();
  if (!IsRead(head)) {
    HttpResponse response = Text(405, "only GET and HEAD\n");
    response.headers["Allow"] = "GET, HEAD";
    return response;
  }
  // Pages are generated for each request, so ranges make no sense.
  if (head.has_range) return Text(416, "");
  if (!target.ok()) return Text(400, Message(target.status()) + "\n");
  const HttpServer::Handler* handler = handlers.Find(target->path);
  const auto at_once = handlers.at_once.find(target->path);
  if (at_once != handlers.at_once.end()) handler = &at_once->second;
  if (handler == nullptr) return Text(404, "no such page\n");
  return (*handler)({.path = std::move(target->path),
                     .query = std::move(target->query),
                     .host = head.host,
                     .parameters = std::move(target->parameters)});
}

// Listens on the first usable address of `at`. Port 0 is replaced by the bound
// port.
StatusOr<Fd> Listen(const std::string& name, HostPort* at) {
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE;
  addrinfo* found = nullptr;
  if (::getaddrinfo(at->host.c_str(), std::to_string(at->port).c_str(), &hints,
                    &found) != 0) {
    found = nullptr;
  }
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> owner(
      found, [](addrinfo* list) {
        if (list != nullptr) ::freeaddrinfo(list);
      });
  for (const addrinfo* a = found; a != nullptr; a = a->ai_next) {
    Fd fd(::socket(a->ai_family, a->ai_socktype | SOCK_CLOEXEC, 0));
    const int yes = 1;
    // Without SO_REUSEPORT a second daemon on the same port is rejected instead
    // of getting half of the requests.
    ::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
    sockaddr_storage bound = {};
    socklen_t size = sizeof(bound);
    if (!fd || ::bind(fd.get(), a->ai_addr, a->ai_addrlen) != 0 ||
        ::listen(fd.get(), kBacklog) != 0 ||
        ::getsockname(fd.get(), reinterpret_cast<sockaddr*>(&bound), &size) !=
            0) {
      continue;
    }
    at->port = ntohs(bound.ss_family == AF_INET6
                         ? reinterpret_cast<sockaddr_in6&>(bound).sin6_port
                         : reinterpret_cast<sockaddr_in&>(bound).sin_port);
    return fd;
  }
  return Unavailable(
      "cannot listen on {}: is the address of this machine, and the port free?",
      name);
}

// Returns null for plain text.
StatusOr<SslContext> MakeTls(const HttpServerOptions& options,
                             const HostPort& address) {
  if (options.web.tls) return MakeSslContext(*options.web.tls);
  if (IsLoopback(address.host)) return SslContext();
  return InvalidArgument(
      "HTTP without TLS is allowed on loopback only, and {} is not: "
      "listen on 127.0.0.1, or give a web configuration with "
      "tls_server_config",
      options.address);
}

}  // namespace

struct HttpServer::State {
  HttpServerOptions options;
  HostPort address;
  std::string bound;
  Handlers handlers;
  // Null if other machines can reach the server: see host_check.h.
  std::unique_ptr<HostCheck> hosts;
  std::unique_ptr<Access> access;
  // Last, because its threads use the other members.
  std::unique_ptr<HttpEngine> engine;
};

HttpServer::HttpServer(std::unique_ptr<State> state)
    : state_(std::move(state)) {}

StatusOr<std::unique_ptr<HttpServer>> HttpServer::Create(
    const HttpServerOptions& options) {
  auto owned = std::make_unique<State>();
  State* const state = owned.get();
  state->options = options;
  LOCKSTEP_ASSIGN_OR_RETURN(state->address, ParseHostPort(options.address));
  HttpEngineOptions engine;
  LOCKSTEP_ASSIGN_OR_RETURN(engine.tls, MakeTls(options, state->address));
  engine.threads = options.threads;
  engine.limits = options.limits;
  engine.answer_at_once = [state](const HttpHead& head) {
    return AnswerAtOnce(state->handlers, head);
  };
  engine.answer = [state](const HttpHead& head) {
    return Answer(state->handlers, state->hosts.get(), state->access.get(),
                  head);
  };
  state->access = std::make_unique<Access>(options.web, options.token);
  if (IsLoopback(state->address.host)) {
    state->hosts = std::make_unique<HostCheck>(state->address.host,
                                               MachineName(), FullMachineName);
  }
  state->engine = std::make_unique<HttpEngine>(std::move(engine));
  return std::unique_ptr<HttpServer>(new HttpServer(std::move(owned)));
}

HttpServer::~HttpServer() = default;

void HttpServer::Handle(const std::string& path, Handler handler) {
  state_->handlers.paths[path] = std::move(handler);
}

void HttpServer::HandlePrefix(const std::string& prefix, Handler handler) {
  state_->handlers.prefixes[prefix] = std::move(handler);
}

void HttpServer::HandleOpen(const std::string& path, Handler handler) {
  state_->handlers.open.insert(path);
  Handle(path, std::move(handler));
}

void HttpServer::HandleAtOnce(const std::string& path, Handler handler) {
  state_->handlers.at_once[path] = std::move(handler);
}

Status HttpServer::Start() {
  LOCKSTEP_ASSIGN_OR_RETURN(Fd listener,
                            Listen(state_->options.address, &state_->address));
  state_->bound = FormatHostPort(state_->address);
  if (!state_->access->asks()) {
    LOG_WARN(
        "http: {} shows metrics and pages without a token, also to every "
        "user of this machine: set http_token_file",
        state_->bound);
  }
  state_->engine->Start(std::move(listener));
  return OkStatus();
}

const std::string& HttpServer::address() const { return state_->bound; }

int HttpServer::port() const { return state_->address.port; }

uint64_t HttpServer::refused() const { return state_->access->refused(); }

bool HttpServer::tls() const { return state_->options.web.tls.has_value(); }

}  // namespace lockstep::http
