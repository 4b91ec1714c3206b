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
#include "common/os/notify.h"
#include "common/pki/credentials.h"
#include "common/rpc/grpc_log.h"
#include "common/rpc/server.h"
#include "server/config.h"
#include "server/coordinator/coordinator.h"
#include "server/logs/log_store.h"
#include "server/logs/log_sweeper.h"
#include "server/service/cluster_service.h"
#include "server/service/http_pages.h"
#include "server/service/job_service.h"
#include "server/service/metric_ledger.h"
#include "server/service/metrics.h"
#include "server/service/rpc_metrics.h"
#include "server/service/worker_service.h"
#include "server/store/sqlite_store.h"

namespace lockstep {
namespace {

using std::chrono_literals::operator""ms;
using std::chrono_literals::operator""s;

constexpr Duration kTick = 100ms;
constexpr char kStoreFile[] = "coordinator.db";
// How old the line that the service manager shows may be.
constexpr Duration kStatusInterval = 2s;
// How exactly it is known when a job makes its first step, or none.
constexpr Duration kLookInterval = 1s;

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
  MetricLedger ledger;
  const std::shared_ptr<RpcMetrics> rpc_metrics =
      std::make_shared<RpcMetrics>();
  std::unique_ptr<LogStore> logs;
  std::unique_ptr<Coordinator> coordinator;
  std::unique_ptr<LogSweeper> log_sweeper;
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
  LOCKSTEP_ASSIGN_OR_RETURN(store,
                            OpenSqliteStore(JoinPath(config.dir, kStoreFile)));
  logs = std::make_unique<LogStore>(files, JoinPath(config.dir, "logs"));
  CoordinatorOptions options;
  options.prices = config.prices;
  options.observer = &ledger;
  options.new_uid = [] { return RandomHex(8); };
  options.new_key = [] { return RandomBytes(32); };
  options.retain_jobs = Seconds(config.retain_jobs);
  options.retain_job_count = config.retain_job_count;
  options.on_job_deleted = [this](const std::string& uid) {
    logs->Remove(uid);
  };
  WorkerServiceOptions worker_options;
  worker_options.cluster = config.cluster;
  worker_options.lease = options.membership.lease;
  coordinator = std::make_unique<Coordinator>(std::move(options), store.get(),
                                              &clock, &hub);
  LOCKSTEP_RETURN_IF_ERROR(coordinator->Load());
  LogSweeperOptions sweep;
  sweep.max_age = Seconds(config.retain_logs);
  sweep.max_bytes = config.retain_log_bytes;
  sweep.find_owner = [this](const std::string& uid) {
    return coordinator->FindLogOwner(uid);
  };
  log_sweeper =
      std::make_unique<LogSweeper>(sweep, logs.get(), &coordinator->clock());
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
  options.observer = rpc_metrics.get();
  LOCKSTEP_ASSIGN_OR_RETURN(
      rpc, RpcServer::Start(options, {job_service.get(), cluster_service.get(),
                                      worker_service.get()}));
  HttpServerOptions http_options;
  http_options.address = config.http_listen;
  LOCKSTEP_ASSIGN_OR_RETURN(http_options.web, LoadWebConfig(config.web_config));
  LOCKSTEP_ASSIGN_OR_RETURN(http, HttpServer::Create(http_options));
  StandardPages pages;
  pages.program = "lockstep-coordinator";
  pages.collectables = {std::make_shared<CoordinatorMetrics>(
                            coordinator.get(), &ledger, config.prices),
                        rpc_metrics};
  pages.ready = [this]() -> Status {
    if (coordinator->store_healthy()) return OkStatus();
    return Unavailable("the store cannot write: commands are refused");
  };
  AddStandardPages(pages, http.get());
  AddCoordinatorPages(config.cluster, coordinator.get(), &ledger, http.get());
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

// For the service manager.
std::string StatusLine(Coordinator* coordinator) {
  const CoordinatorStats stats = coordinator->Stats();
  const int64_t queued = stats.jobs.at(JobState::kQueued);
  int64_t active = 0, nodes = 0;
  for (const auto& [state, count] : stats.jobs) {
    if (!IsFinal(state) && state != JobState::kQueued) active += count;
  }
  for (const auto& [state, count] : stats.nodes) nodes += count;
  return fmt::format("{}{} jobs active, {} queued; {} of {} nodes ready",
                     coordinator->store_healthy()
                         ? ""
                         : "THE STORE CANNOT WRITE, commands are refused; ",
                     active, queued, stats.nodes.at(NodeState::kReady), nodes);
}

// Ticks until a signal comes. The watchdog hears from this loop alone.
void RunUntilSignal(Coordinator* coordinator, MetricLedger* ledger,
                    const Clock& clock, const Fd& signals, Notifier* notifier) {
  pollfd waiting{signals.get(), POLLIN, 0};
  MonoTime next_status, next_look;
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
    const MonoTime now = clock.Now().mono;
    notifier->Turn(now);
    if (now >= next_look) {
      next_look = now + kLookInterval;
      ledger->Look(coordinator->View(kSeriesLinger));
    }
    if (notifier->enabled() && now >= next_status) {
      next_status = now + kStatusInterval;
      notifier->SetStatus(StatusLine(coordinator));
    }
  }
}

Status Run(Config config) {
  Notifier notifier = Notifier::FromEnvironment();
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
  if (!config.backup_to.empty()) {
    return BackupSqliteStore(JoinPath(config.dir, kStoreFile),
                             config.backup_to);
  }
  const Fd signals = BlockSignals();
  App app(config);
  LOCKSTEP_RETURN_IF_ERROR(app.Start());
  notifier.SetStatus(StatusLine(app.coordinator.get()));
  notifier.Ready(app.clock.Now().mono);
  RunUntilSignal(app.coordinator.get(), &app.ledger, app.clock, signals,
                 &notifier);
  notifier.Stopping();
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
