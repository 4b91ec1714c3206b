// lockstep-coordinator: builds the object graph and waits for a signal.

#include <poll.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <thread>

#include "common/base/clock.h"
#include "common/base/fault_point.h"
#include "common/base/fd.h"
#include "common/base/file.h"
#include "common/base/leave.h"
#include "common/base/logging.h"
#include "common/base/random.h"
#include "common/base/version.h"
#include "common/http/metrics.h"
#include "common/http/server.h"
#include "common/pki/credentials.h"
#include "common/rpc/grpc_log.h"
#include "common/rpc/server.h"
#include "server/config.h"
#include "server/coordinator/coordinator.h"
#include "server/logs/log_store.h"
#include "server/service/cluster_service.h"
#include "server/service/job_service.h"
#include "server/service/metrics.h"
#include "server/service/worker_service.h"
#include "server/store/sqlite_store.h"

namespace lockstep {
namespace {

using std::chrono_literals::operator""ms;

constexpr Duration kTick = 100ms;

// Everything with a lifetime, destroyed in reverse order.
struct App {
  explicit App(const Config& c) : config(c) {}

  Status Start();
  Status LoadIdentity();
  Status Serve();

  const Config config;
  SystemClock clock;
  std::optional<Credentials> credentials;
  std::unique_ptr<Store> store;
  WatchHub hub;
  std::unique_ptr<LogStore> logs;
  std::unique_ptr<Coordinator> coordinator;
  std::unique_ptr<JobService> job_service;
  std::unique_ptr<ClusterService> cluster_service;
  std::unique_ptr<WorkerService> worker_service;
  std::unique_ptr<HttpServer> http;
  std::unique_ptr<RpcServer> rpc;
};

Status App::Start() {
  FileSystem* files = RealFileSystem();
  // What can be refused is refused before the store is touched.
  LOCKSTEP_RETURN_IF_ERROR(LoadIdentity());
  LOCKSTEP_RETURN_IF_ERROR(files->MakeDirs(config.dir, 0700));
  LOCKSTEP_ASSIGN_OR_RETURN(
      store, OpenSqliteStore(JoinPath(config.dir, "coordinator.db")));
  logs = std::make_unique<LogStore>(files, JoinPath(config.dir, "logs"));
  CoordinatorOptions options;
  options.prices = config.prices;
  options.new_uid = [] { return RandomHex(8); };
  options.new_key = [] { return RandomBytes(32); };
  WorkerServiceOptions worker_options;
  worker_options.cluster = config.cluster;
  worker_options.lease = options.membership.lease;
  coordinator = std::make_unique<Coordinator>(std::move(options), store.get(),
                                              &clock, &hub);
  LOCKSTEP_RETURN_IF_ERROR(coordinator->Load());
  job_service =
      std::make_unique<JobService>(coordinator.get(), &hub, logs.get());
  cluster_service = std::make_unique<ClusterService>(coordinator.get());
  worker_service = std::make_unique<WorkerService>(
      std::move(worker_options), coordinator.get(), logs.get());
  return Serve();
}

Status App::LoadIdentity() {
  if (config.insecure_loopback) return OkStatus();
  if (config.ca.empty() || config.cert.empty() || config.key.empty()) {
    return InvalidArgument(
        "give --ca, --cert and --key (`lockstep init` makes them), or "
        "--insecure_loopback to try it on this machine alone");
  }
  LOCKSTEP_ASSIGN_OR_RETURN(
      credentials,
      LoadCredentials(RealFileSystem(), {config.ca, config.cert, config.key},
                      clock.Now().wall));
  const Identity& identity = credentials->identity;
  if (identity.kind != Identity::Kind::kCoordinator) {
    return InvalidArgument("{} is the certificate of {}, not a coordinator's",
                           config.cert, Describe(identity));
  }
  if (identity.cluster != config.cluster) {
    return InvalidArgument(
        "{} is of cluster {}, and --cluster is {}: they must be the same",
        config.cert, identity.cluster, config.cluster);
  }
  return OkStatus();
}

Status App::Serve() {
  RpcServerOptions options;
  options.address = config.listen;
  options.insecure_loopback = config.insecure_loopback;
  options.credentials = credentials;
  LOCKSTEP_ASSIGN_OR_RETURN(
      rpc, RpcServer::Start(options, {job_service.get(), cluster_service.get(),
                                      worker_service.get()}));
  HttpServerOptions http_options;
  http_options.address = config.http_listen;
  http_options.tls_certificate = config.http_tls_certificate;
  http_options.tls_key = config.http_tls_key;
  LOCKSTEP_ASSIGN_OR_RETURN(http, HttpServer::Create(http_options));
  StandardPages pages;
  pages.program = "lockstep-coordinator";
  pages.collectables = {
      std::make_shared<CoordinatorMetrics>(coordinator.get())};
  pages.ready = [this]() -> Status {
    if (coordinator->store_healthy()) return OkStatus();
    return Unavailable("the store cannot write: commands are refused");
  };
  AddStandardPages(pages, http.get());
  LOCKSTEP_RETURN_IF_ERROR(http->Start());
  const nlohmann::json endpoint = {
      {"pid", ::getpid()}, {"grpc", rpc->address()}, {"http", http->address()}};
  LOCKSTEP_RETURN_IF_ERROR(RealFileSystem()->WriteAtomic(
      JoinPath(config.dir, "endpoint.json"), endpoint.dump() + "\n"));
  LOG_INFO("serving gRPC on {} and HTTP on {}", rpc->address(),
           http->address());
  return OkStatus();
}

// Blocks the signals that end the program; call before any thread starts.
Fd BlockSignals() {
  signal(SIGPIPE, SIG_IGN);
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGTERM);
  sigaddset(&set, SIGINT);
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
  return Fd(signalfd(-1, &set, SFD_CLOEXEC));
}

// Ticks until a signal comes.
void RunUntilSignal(Coordinator* coordinator, const Fd& signals) {
  pollfd waiting{signals.get(), POLLIN, 0};
  for (;;) {
    const int ready = ::poll(
        &waiting, 1, static_cast<int>(kTick / std::chrono::milliseconds(1)));
    if (ready > 0) {
      signalfd_siginfo info{};
      if (::read(signals.get(), &info, sizeof(info)) == sizeof(info)) {
        LOG_INFO("SIG{}: leaving; running jobs go on",
                 sigabbrev_np(static_cast<int>(info.ssi_signo)));
        return;
      }
    }
    coordinator->Tick();
  }
}

Status Run(Config config) {
  InitLogging("coordinator", config.log_level);
  RedirectGrpcLog(GrpcLog::kToOurs);
  if (!config.allow_faults.empty()) {
    if (!config.insecure_loopback && !config.listen.starts_with("127.")) {
      return InvalidArgument(
          "--allow_faults is for tests: it does not go with --listen {}",
          config.listen);
    }
    LOCKSTEP_RETURN_IF_ERROR(EnableFaults(config.allow_faults));
  }
  if (!config.prices_file.empty()) {
    LOCKSTEP_ASSIGN_OR_RETURN(config.prices, LoadPrices(config.prices_file));
  }
  const Fd signals = BlockSignals();
  App app(config);
  LOCKSTEP_RETURN_IF_ERROR(app.Start());
  RunUntilSignal(app.coordinator.get(), signals);
  app.hub.Close();
  app.logs->Close();
  app.rpc->SetServing(false);
  app.coordinator->CloseStreams();
  // Streams are ended and calls take milliseconds; a client that only keeps
  // its connection is not waited for.
  app.rpc->Shutdown(500ms);
  return OkStatus();
}

}  // namespace
}  // namespace lockstep

int main(int argc, char** argv) {
  lockstep::Config config;
  int exit_code = 0;
  if (!lockstep::ParseFlags(argc, argv, &config, &exit_code)) return exit_code;
  const lockstep::Status status = lockstep::Run(std::move(config));
  if (!status.ok()) {
    fprintf(stderr, "lockstep-coordinator: %s\n",
            lockstep::Message(status).c_str());
  }
  lockstep::LeaveProcess(status.ok() ? 0 : 1);
}
