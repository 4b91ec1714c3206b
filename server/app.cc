#include "server/app.h"

#include <unistd.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "common/base/file.h"
#include "common/base/logging.h"
#include "common/base/random.h"
#include "common/http/metrics.h"
#include "server/listen_check.h"
#include "server/metrics/backup_metrics.h"
#include "server/metrics/metrics.h"
#include "server/metrics/notify_metrics.h"
#include "server/metrics/package_metrics.h"
#include "server/metrics/session_metrics.h"
#include "server/notify/delivery.h"
#include "server/page/http_pages.h"
#include "server/store/sqlite_store.h"

namespace lockstep::server {
namespace {

// Returns nullopt if the coordinator serves without credentials.
StatusOr<std::optional<pki::Credentials>> LoadIdentity(const Config& config,
                                                       WallTime now) {
  if (config.insecure_loopback) return std::nullopt;
  if (config.ca.empty() || config.cert.empty() || config.key.empty()) {
    return InvalidArgument(
        "give --ca, --cert and --key (`lockstep init` makes them), or "
        "--insecure-loopback to try it on this machine only");
  }
  LOCKSTEP_ASSIGN_OR_RETURN(
      pki::Credentials credentials,
      pki::LoadCredentials(RealFileSystem(),
                           {config.ca, config.cert, config.key}, now));
  const pki::Identity& identity = credentials.identity;
  if (identity.kind != pki::Identity::Kind::kCoordinator) {
    return InvalidArgument("{} is the certificate of {}, not a coordinator's",
                           config.cert, Describe(identity));
  }
  if (identity.cluster != config.cluster) {
    return InvalidArgument(
        "{} belongs to cluster {}, but --cluster is {}: they must be equal",
        config.cert, identity.cluster, config.cluster);
  }
  if (const Duration left = credentials.not_after - now;
      left < kCertificateWarning) {
    LOG_WARN("the certificate {} expires in {}: issue a new one and restart",
             config.cert, FormatDuration(left));
  }
  return credentials;
}

MembershipOptions MembershipOf(const Config& config) {
  MembershipOptions options;
  options.gpus.fatal_xids = {config.fatal_xids.begin(),
                             config.fatal_xids.end()};
  options.node_limit = {config.max_node_cpus,
                        static_cast<int64_t>(config.max_node_memory),
                        config.max_node_gpus, ""};
  return options;
}

SessionPolicy PolicyOf(const Config& config) {
  if (config.exec == "off") return SessionPolicy::kOff;
  return config.exec == "admins" ? SessionPolicy::kAdmins : SessionPolicy::kOn;
}

}  // namespace

Status App::Start() {
  // Checks that can fail come before the store is opened: a failed start must
  // not raise the epoch.
  LOCKSTEP_RETURN_IF_ERROR(OpenAccess());
  if (!config.notify_file.empty()) {
    LOCKSTEP_ASSIGN_OR_RETURN(
        receivers_, LoadReceivers(RealFileSystem(), config.notify_file));
  }
  for (const std::string& address : {config.listen, config.http_listen}) {
    LOCKSTEP_RETURN_IF_ERROR(CheckCanListen(address));
  }
  LOCKSTEP_RETURN_IF_ERROR(OpenStores());
  LOCKSTEP_RETURN_IF_ERROR(LoadCoordinator());
  ScheduleBackups();
  SweepLogs();
  LOCKSTEP_RETURN_IF_ERROR(OpenPackages());
  MakeServices();
  LOCKSTEP_RETURN_IF_ERROR(StartNotifying());
  LOCKSTEP_RETURN_IF_ERROR(ServeRpc());
  LOCKSTEP_RETURN_IF_ERROR(ServeHttp());
  if (const Status status = WriteEndpoint(); !status.ok()) {
    LOG_ERROR(
        "it serves, and retries every second to write the endpoint file: {}",
        Message(status));
  }
  LOG_INFO("serving gRPC on {} and HTTP on {}", rpc->address(),
           http->address());
  return OkStatus();
}

Status App::OpenAccess() {
  LOCKSTEP_ASSIGN_OR_RETURN(access.credentials,
                            LoadIdentity(config, clock.Now().wall));
  if (config.machines_file.empty()) {
    site = std::make_unique<SiteTables>();
  } else {
    LOCKSTEP_ASSIGN_OR_RETURN(
        site, SiteTables::Open(RealFileSystem(), config.machines_file));
  }
  LOCKSTEP_ASSIGN_OR_RETURN(access.web, http::LoadWebConfig(config.web_config));
  if (!config.http_token_file.empty()) {
    LOCKSTEP_ASSIGN_OR_RETURN(
        access.http_token,
        http::AccessToken::Open(config.http_token_file, &clock));
  }
  return OkStatus();
}

Status App::OpenStores() {
  FileSystem* files = RealFileSystem();
  LOCKSTEP_RETURN_IF_ERROR(files->MakeDirs(config.dir, 0700));
  for (const char* folder : {"history", "logs", "packages"}) {
    LOCKSTEP_RETURN_IF_ERROR(
        files->MakeDirs(JoinPath(config.dir, folder), 0700));
  }
  LOCKSTEP_RETURN_IF_ERROR(files->SyncDir(config.dir));
  // Giving up the ballast makes room on a full disk for the following.
  BallastOptions ballast_options;
  ballast_options.dir = config.dir;
  stores.ballast = std::make_unique<Ballast>(std::move(ballast_options));
  stores.ballast->Look();
  auto opened = OpenSqliteStore(JoinPath(config.dir, kStoreFile));
  if (!opened.ok()) return stores.ballast->ExplainStart(opened.status());
  stores.store = *std::move(opened);
  stores.logs = std::make_unique<LogStore>(files, JoinPath(config.dir, "logs"));
  HistoryOptions history;
  history.space = [this] { return stores.ballast->CheckSpace(); };
  stores.history = std::make_unique<HistoryKeeper>(
      std::move(history), files, JoinPath(config.dir, "history"));
  return OkStatus();
}

Status App::LoadCoordinator() {
  CoordinatorOptions options;
  options.prices = config.prices;
  options.observer = &observers.ledger;
  if (config.idle_notice > 0) options.idle.notice = Seconds(config.idle_notice);
  if (config.idle_stop > 0) options.idle.stop = Seconds(config.idle_stop);
  options.on_captured = [this](const FoundRanks& ranks) {
    if (services.hangs != nullptr) services.hangs->OnCaptured(ranks);
  };
  options.new_uid = [] { return RandomHex(8); };
  options.new_key = [] { return RandomBytes(32); };
  options.retention.jobs = Seconds(config.retain_jobs);
  options.retention.job_count = config.retain_job_count;
  options.limits.per_user.jobs = config.max_user_jobs;
  options.limits.per_user.bytes = config.max_user_job_bytes;
  options.membership = MembershipOf(config);
  options.silence.lost_after = Seconds(config.node_lost_seconds);
  options.retention.on_deleted = [this](const std::string& uid) {
    stores.logs->Remove(uid);
    stores.history->Remove(uid);
  };
  coordinator = std::make_unique<Coordinator>(std::move(options),
                                              stores.store.get(), &clock, &hub);
  const Status loaded = coordinator->Load();
  return loaded.ok() ? loaded : stores.ballast->ExplainStart(loaded);
}

void App::ScheduleBackups() {
  if (config.backup_interval <= 0) return;
  BackupOptions backup;
  backup.store = JoinPath(config.dir, kStoreFile);
  backup.dir = config.backup_dir.empty() ? JoinPath(config.dir, "backups")
                                         : config.backup_dir;
  backup.interval = Seconds(config.backup_interval);
  backup.keep = config.backup_keep;
  backup.version = [this] { return coordinator->queries()->version(); };
  if (config.backup_dir.empty()) {
    backup.space = [this] { return stores.ballast->CheckSpace(); };
  }
  upkeep.backups = std::make_unique<BackupSchedule>(std::move(backup),
                                                    &coordinator->clock());
}

void App::SweepLogs() {
  LogSweeperOptions sweep;
  sweep.max_age = Seconds(config.retain_logs);
  sweep.max_bytes = config.retain_log_bytes;
  sweep.find_owner = [this](const std::string& uid) {
    return coordinator->queries()->FindLogOwner(uid);
  };
  sweep.removed = [this](const std::string& uid) {
    coordinator->sessions()->DropWork(uid);
  };
  upkeep.log_sweeper = std::make_unique<LogSweeper>(sweep, stores.logs.get(),
                                                    &coordinator->clock());
}

void App::MakeServices() {
  WorkFilesOptions files_options;
  files_options.max_file_bytes = static_cast<int64_t>(
      std::min<uint64_t>(config.max_file_bytes, INT64_MAX));
  services.work_files = std::make_unique<WorkFiles>(files_options);
  services.evidence = std::make_unique<EvidenceDesk>();
  services.evidence_calls =
      std::make_unique<EvidenceCalls>(services.evidence.get());
  services.hangs = std::make_unique<HangReporter>(
      services.evidence.get(),
      [this](const FoundRanks& ranks, const HangVerdict& verdict) {
        coordinator->jobs()->RecordVerdict(ranks, verdict);
      });
  services.sessions = std::make_unique<SessionDesk>();
  services.pools = std::make_unique<CallPools>();
  services.jobs = std::make_unique<JobService>(
      services.pools.get(), coordinator->jobs(), coordinator->queries(), &hub,
      stores.logs.get(), site.get(), upkeep.packages.get(),
      observers.streams.get(), services.work_files.get(),
      JobServiceOptions{config.max_submitter_priority,
                        [this] { return stores.ballast->CheckSpace(); },
                        observers.readers.get(), services.evidence.get(),
                        services.sessions.get(), PolicyOf(config)});
  services.packages = std::make_unique<PackageService>(
      PackageServiceOptions(), services.pools.get(), upkeep.packages.get());
  services.cluster = std::make_unique<ClusterService>(
      services.pools.get(), coordinator->nodes(), coordinator->queries());
  WorkerServiceOptions worker_options;
  worker_options.cluster = config.cluster;
  worker_options.lease = MembershipOf(config).lease;
  worker_options.space = [this] { return stores.ballast->CheckSpace(); };
  worker_options.evidence = services.evidence.get();
  worker_options.sessions = services.sessions.get();
  services.workers = std::make_unique<WorkerService>(
      std::move(worker_options), services.pools.get(), coordinator->sessions(),
      coordinator->queries(), stores.logs.get(), observers.streams.get(),
      services.work_files.get());
}

Status App::StartNotifying() {
  if (receivers_.all.empty()) return OkStatus();
  DispatcherOptions options;
  options.cluster = config.cluster;
  options.dir = JoinPath(config.dir, "notify");
  options.receivers = receivers_;
  options.view = [this](Duration linger) {
    return coordinator->queries()->View(linger);
  };
  options.deliver = Deliver;
  LOCKSTEP_ASSIGN_OR_RETURN(
      upkeep.dispatcher, Dispatcher::Start(std::move(options), RealFileSystem(),
                                           &coordinator->clock()));
  return OkStatus();
}

Status App::OpenPackages() {
  PackageStoreOptions options;
  options.dir = JoinPath(config.dir, "packages");
  options.max_bytes = config.max_package_bytes;
  options.max_owner_bytes = config.package_quota;
  options.reserve_bytes = config.package_reserve;
  options.needed = [this] { return coordinator->queries()->NeededPackages(); };
  LOCKSTEP_ASSIGN_OR_RETURN(
      upkeep.packages, PackageStore::Open(RealFileSystem(), std::move(options),
                                          &coordinator->clock()));
  PackageSweeperOptions sweep;
  sweep.needed = [this] { return coordinator->queries()->NeededPackages(); };
  upkeep.package_sweeper = std::make_unique<PackageSweeper>(
      std::move(sweep), upkeep.packages.get(), &coordinator->clock());
  return OkStatus();
}

Status App::Reload() {
  Prices prices = config.prices;
  if (!config.prices_file.empty()) {
    LOCKSTEP_ASSIGN_OR_RETURN(prices, LoadPrices(config.prices_file));
  }
  Receivers receivers;
  if (upkeep.dispatcher) {
    LOCKSTEP_ASSIGN_OR_RETURN(
        receivers, LoadReceivers(RealFileSystem(), config.notify_file));
    LOCKSTEP_RETURN_IF_ERROR(upkeep.dispatcher->SetReceivers(receivers));
  }
  if (const Status tables = site->Reload(); !tables.ok()) {
    if (upkeep.dispatcher) {
      (void)upkeep.dispatcher->SetReceivers(receivers_);
    }
    return tables;
  }
  coordinator->SetPrices(std::move(prices));
  receivers_ = std::move(receivers);
  return OkStatus();
}

Status App::ServeRpc() {
  RpcServerOptions options;
  options.address = config.listen;
  options.insecure_loopback = config.insecure_loopback;
  options.credentials = access.credentials;
  options.observer = observers.rpc.get();
  options.pools = services.pools.get();
  AuditLogOptions audit_options;
  audit_options.path = config.audit_log.empty()
                           ? JoinPath(config.dir, "audit.log")
                           : config.audit_log;
  LOCKSTEP_ASSIGN_OR_RETURN(observers.audit,
                            AuditLog::Open(std::move(audit_options)));
  options.audit = observers.audit.get();
  options.audit_space = [this] { return stores.ballast->CheckSpace(); };
  LOCKSTEP_ASSIGN_OR_RETURN(
      rpc, RpcServer::Start(options,
                            {services.jobs.get(), services.cluster.get(),
                             services.workers.get(), services.packages.get()}));
  return OkStatus();
}

Status App::ServeHttp() {
  http::HttpServerOptions http_options;
  http_options.address = config.http_listen;
  http_options.web = access.web;
  http_options.token = access.http_token;
  LOCKSTEP_ASSIGN_OR_RETURN(http, http::HttpServer::Create(http_options));
  DaemonFacts facts;
  facts.dir = config.dir;
  facts.ballast = stores.ballast.get();
  if (access.credentials) {
    facts.certificate_end = access.credentials->not_after;
  }
  http::StandardPages pages;
  pages.program = "lockstep-coordinator";
  pages.collectables = {std::make_shared<CoordinatorMetrics>(
                            coordinator->queries(), &observers.ledger,
                            std::move(facts), site.get()),
                        std::make_shared<PackageMetrics>(upkeep.packages.get()),
                        std::make_shared<BackupMetrics>(upkeep.backups.get()),
                        std::make_shared<NotifyMetrics>(upkeep.dispatcher.get(),
                                                        &coordinator->clock()),
                        std::make_shared<SessionMetrics>(
                            [this] { return services.sessions->Figures(); }),
                        observers.rpc,
                        observers.streams,
                        observers.readers};
  pages.ready = [this]() -> Status {
    if (coordinator->queries()->store_healthy()) return OkStatus();
    return Unavailable("the store cannot write: commands are rejected");
  };
  AddStandardPages(pages, http.get());
  PageParts page_parts;
  page_parts.cluster = config.cluster;
  page_parts.grafana_url = config.grafana_url;
  page_parts.queries = coordinator->queries();
  page_parts.ledger = &observers.ledger;
  page_parts.history = stores.history.get();
  page_parts.logs = stores.logs.get();
  page_parts.evidence = services.evidence_calls.get();
  // The reader of a page owns no job.
  page_parts.reader = [this] {
    return ReaderOf("", config.insecure_loopback, site->Get()->visibility);
  };
  AddCoordinatorPages(page_parts, http.get());
  return http->Start();
}

Status App::WriteEndpoint() {
  const nlohmann::json endpoint = {
      {"pid", ::getpid()}, {"grpc", rpc->address()}, {"http", http->address()}};
  const Status status = RealFileSystem()->WriteAtomic(
      JoinPath(config.dir, "endpoint.json"), endpoint.dump() + "\n");
  endpoint_written_ = status.ok();
  return status;
}

void App::RetryWrites() {
  stores.ballast->Look();
  rpc->FlushAudit();
  // The first failure was logged.
  if (!endpoint_written_) WriteEndpoint().IgnoreError();
}

}  // namespace lockstep::server
