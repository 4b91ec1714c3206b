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
#include "server/metrics/package_metrics.h"
#include "server/page/http_pages.h"
#include "server/store/sqlite_store.h"

namespace lockstep {

Status App::Start() {
  FileSystem* files = RealFileSystem();
  // What can be refused is refused before the store is touched: a start that
  // fails must not raise the epoch.
  LOCKSTEP_RETURN_IF_ERROR(LoadIdentity());
  if (config.machines_file.empty()) {
    site = std::make_unique<SiteTables>();
  } else {
    LOCKSTEP_ASSIGN_OR_RETURN(site,
                              SiteTables::Open(files, config.machines_file));
  }
  LOCKSTEP_ASSIGN_OR_RETURN(web, LoadWebConfig(config.web_config));
  if (!config.http_token_file.empty()) {
    LOCKSTEP_ASSIGN_OR_RETURN(
        http_token, AccessToken::Open(config.http_token_file, &clock));
  }
  for (const std::string& address : {config.listen, config.http_listen}) {
    LOCKSTEP_RETURN_IF_ERROR(CheckCanListen(address));
  }
  LOCKSTEP_RETURN_IF_ERROR(files->MakeDirs(config.dir, 0700));
  for (const char* folder : {"logs", "packages"}) {
    LOCKSTEP_RETURN_IF_ERROR(
        files->MakeDirs(JoinPath(config.dir, folder), 0700));
  }
  LOCKSTEP_RETURN_IF_ERROR(files->SyncDir(config.dir));
  // A full disk has room for what follows once it is given up.
  BallastOptions ballast_options;
  ballast_options.dir = config.dir;
  ballast = std::make_unique<Ballast>(std::move(ballast_options));
  ballast->Look();
  auto opened = OpenSqliteStore(JoinPath(config.dir, kStoreFile));
  if (!opened.ok()) return ballast->ExplainStart(opened.status());
  store = *std::move(opened);
  logs = std::make_unique<LogStore>(files, JoinPath(config.dir, "logs"));
  CoordinatorOptions options;
  options.prices = config.prices;
  options.observer = &ledger;
  options.new_uid = [] { return RandomHex(8); };
  options.new_key = [] { return RandomBytes(32); };
  options.retention.jobs = Seconds(config.retain_jobs);
  options.retention.job_count = config.retain_job_count;
  options.limits.per_user.jobs = config.max_user_jobs;
  options.limits.per_user.bytes = config.max_user_job_bytes;
  options.membership.fatal_xids = {config.fatal_xids.begin(),
                                   config.fatal_xids.end()};
  options.membership.node_limit = {config.max_node_cpus,
                                   static_cast<int64_t>(config.max_node_memory),
                                   config.max_node_gpus, ""};
  options.retention.on_deleted = [this](const std::string& uid) {
    logs->Remove(uid);
  };
  WorkerServiceOptions worker_options;
  worker_options.cluster = config.cluster;
  worker_options.lease = options.membership.lease;
  worker_options.space = [this] { return ballast->CheckSpace(); };
  coordinator = std::make_unique<Coordinator>(std::move(options), store.get(),
                                              &clock, &hub);
  if (const Status loaded = coordinator->Load(); !loaded.ok()) {
    return ballast->ExplainStart(loaded);
  }
  if (config.backup_interval > 0) {
    BackupOptions backup;
    backup.store = JoinPath(config.dir, kStoreFile);
    backup.dir = config.backup_dir.empty() ? JoinPath(config.dir, "backups")
                                           : config.backup_dir;
    backup.interval = Seconds(config.backup_interval);
    backup.keep = config.backup_keep;
    backup.version = [this] { return coordinator->queries()->version(); };
    if (config.backup_dir.empty()) {
      backup.space = [this] { return ballast->CheckSpace(); };
    }
    backups = std::make_unique<BackupSchedule>(std::move(backup),
                                               &coordinator->clock());
  }
  LogSweeperOptions sweep;
  sweep.max_age = Seconds(config.retain_logs);
  sweep.max_bytes = config.retain_log_bytes;
  sweep.find_owner = [this](const std::string& uid) {
    return coordinator->queries()->FindLogOwner(uid);
  };
  sweep.removed = [this](const std::string& uid) {
    coordinator->sessions()->DropWork(uid);
  };
  log_sweeper =
      std::make_unique<LogSweeper>(sweep, logs.get(), &coordinator->clock());
  LOCKSTEP_RETURN_IF_ERROR(OpenPackages());
  WorkFilesOptions files_options;
  files_options.max_file_bytes = static_cast<int64_t>(
      std::min<uint64_t>(config.max_file_bytes, INT64_MAX));
  work_files = std::make_unique<WorkFiles>(files_options);
  pools = std::make_unique<CallPools>();
  job_service = std::make_unique<JobService>(
      pools.get(), coordinator->jobs(), coordinator->queries(), &hub,
      logs.get(), site.get(), packages.get(), stream_metrics.get(),
      work_files.get(),
      JobServiceOptions{config.max_submitter_priority,
                        [this] { return ballast->CheckSpace(); },
                        readers.get()});
  package_service = std::make_unique<PackageService>(
      PackageServiceOptions(), pools.get(), packages.get());
  cluster_service = std::make_unique<ClusterService>(coordinator->nodes(),
                                                     coordinator->queries());
  worker_service = std::make_unique<WorkerService>(
      std::move(worker_options), pools.get(), coordinator->sessions(),
      coordinator->queries(), logs.get(), stream_metrics.get(),
      work_files.get());
  return Serve();
}

Status App::OpenPackages() {
  PackageStoreOptions options;
  options.dir = JoinPath(config.dir, "packages");
  options.max_bytes = config.max_package_bytes;
  options.max_owner_bytes = config.package_quota;
  options.reserve_bytes = config.package_reserve;
  options.needed = [this] { return coordinator->queries()->NeededPackages(); };
  LOCKSTEP_ASSIGN_OR_RETURN(
      packages, PackageStore::Open(RealFileSystem(), std::move(options),
                                   &coordinator->clock()));
  PackageSweeperOptions sweep;
  sweep.needed = [this] { return coordinator->queries()->NeededPackages(); };
  package_sweeper = std::make_unique<PackageSweeper>(
      std::move(sweep), packages.get(), &coordinator->clock());
  return OkStatus();
}

Status App::Reload() {
  Prices prices = config.prices;
  if (!config.prices_file.empty()) {
    LOCKSTEP_ASSIGN_OR_RETURN(prices, LoadPrices(config.prices_file));
  }
  LOCKSTEP_RETURN_IF_ERROR(site->Reload());
  coordinator->SetPrices(std::move(prices));
  return OkStatus();
}

Status App::LoadIdentity() {
  if (config.insecure_loopback) return OkStatus();
  if (config.ca.empty() || config.cert.empty() || config.key.empty()) {
    return InvalidArgument(
        "give --ca, --cert and --key (`lockstep init` makes them), or "
        "--insecure-loopback to try it on this machine alone");
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
  if (const Duration left = credentials->not_after - clock.Now().wall;
      left < kCertificateWarning) {
    LOG_WARN("the certificate {} ends in {}: issue a new one and start again",
             config.cert, FormatDuration(left));
  }
  return OkStatus();
}

Status App::Serve() {
  RpcServerOptions options;
  options.address = config.listen;
  options.insecure_loopback = config.insecure_loopback;
  options.credentials = credentials;
  options.observer = rpc_metrics.get();
  options.pools = pools.get();
  AuditLogOptions audit_options;
  audit_options.path = config.audit_log.empty()
                           ? JoinPath(config.dir, "audit.log")
                           : config.audit_log;
  LOCKSTEP_ASSIGN_OR_RETURN(audit, AuditLog::Open(std::move(audit_options)));
  options.audit = audit.get();
  options.audit_space = [this] { return ballast->CheckSpace(); };
  LOCKSTEP_ASSIGN_OR_RETURN(
      rpc,
      RpcServer::Start(options, {job_service.get(), cluster_service.get(),
                                 worker_service.get(), package_service.get()}));
  HttpServerOptions http_options;
  http_options.address = config.http_listen;
  http_options.web = web;
  http_options.token = http_token;
  LOCKSTEP_ASSIGN_OR_RETURN(http, HttpServer::Create(http_options));
  DaemonFacts facts;
  facts.dir = config.dir;
  facts.ballast = ballast.get();
  if (credentials) facts.certificate_end = credentials->not_after;
  StandardPages pages;
  pages.program = "lockstep-coordinator";
  pages.collectables = {
      std::make_shared<CoordinatorMetrics>(coordinator->queries(), &ledger,
                                           std::move(facts), site.get()),
      std::make_shared<PackageMetrics>(packages.get()),
      std::make_shared<BackupMetrics>(backups.get()),
      rpc_metrics,
      stream_metrics,
      readers};
  pages.ready = [this]() -> Status {
    if (coordinator->queries()->store_healthy()) return OkStatus();
    return Unavailable("the store cannot write: commands are refused");
  };
  AddStandardPages(pages, http.get());
  // Who looks at a page is nobody's owner.
  const auto page_reader = [this] {
    return ReaderOf("", config.insecure_loopback, site->Get()->visibility);
  };
  AddCoordinatorPages(config.cluster, coordinator->queries(), &ledger,
                      page_reader, http.get());
  LOCKSTEP_RETURN_IF_ERROR(http->Start());
  if (const Status status = WriteEndpoint(); !status.ok()) {
    LOG_ERROR("it serves, and tries again every second to write where: {}",
              Message(status));
  }
  LOG_INFO("serving gRPC on {} and HTTP on {}", rpc->address(),
           http->address());
  return OkStatus();
}

Status App::WriteEndpoint() {
  const nlohmann::json endpoint = {
      {"pid", ::getpid()}, {"grpc", rpc->address()}, {"http", http->address()}};
  const Status status = RealFileSystem()->WriteAtomic(
      JoinPath(config.dir, "endpoint.json"), endpoint.dump() + "\n");
  endpoint_written_ = status.ok();
  return status;
}

void App::LookAtDisk() {
  ballast->Look();
  rpc->FlushAudit();
  // The first failure was logged.
  if (!endpoint_written_) WriteEndpoint().IgnoreError();
}

}  // namespace lockstep
