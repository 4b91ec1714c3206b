// The coordinator's object graph.
#ifndef LOCKSTEP_SERVER_APP_H_
#define LOCKSTEP_SERVER_APP_H_

#include <memory>
#include <optional>

#include "common/base/clock.h"
#include "common/base/status.h"
#include "common/http/server.h"
#include "common/pki/credentials.h"
#include "common/rpc/audit_log.h"
#include "common/rpc/call_pools.h"
#include "common/rpc/server.h"
#include "server/config.h"
#include "server/coordinator/coordinator.h"
#include "server/history/history_keeper.h"
#include "server/logs/log_store.h"
#include "server/logs/log_sweeper.h"
#include "server/metrics/metric_ledger.h"
#include "server/metrics/rpc_metrics.h"
#include "server/metrics/stream_metrics.h"
#include "server/notify/dispatcher.h"
#include "server/packages/package_store.h"
#include "server/packages/package_sweeper.h"
#include "server/service/cluster_service.h"
#include "server/service/evidence_calls.h"
#include "server/service/evidence_desk.h"
#include "server/service/hang_reporter.h"
#include "server/service/job_service.h"
#include "server/service/package_service.h"
#include "server/service/session_desk.h"
#include "server/service/work_files.h"
#include "server/service/worker_service.h"
#include "server/site/site_tables.h"
#include "server/store/backup_schedule.h"
#include "server/store/ballast.h"
#include "server/store_file_name.h"
#include "server/stream/stream_readers.h"

namespace lockstep::server {

// In each of these structs, members are destroyed in reverse order.

// The coordinator's credentials and the access to its HTTP port.
struct Access {
  std::optional<pki::Credentials> credentials;
  http::WebConfig web;
  // Null if HTTP requires no token.
  std::shared_ptr<http::AccessToken> http_token;
};

// Counts and records the coordinator's work.
struct Observers {
  MetricLedger ledger;
  const std::shared_ptr<RpcMetrics> rpc = std::make_shared<RpcMetrics>();
  const std::shared_ptr<StreamMetrics> streams =
      std::make_shared<StreamMetrics>();
  const std::shared_ptr<StreamReaders> readers =
      std::make_shared<StreamReaders>();
  std::unique_ptr<AuditLog> audit;
};

// The files that are opened before the coordinator loads.
struct Stores {
  std::unique_ptr<Ballast> ballast;
  std::unique_ptr<Store> store;
  std::unique_ptr<LogStore> logs;
  std::unique_ptr<HistoryKeeper> history;
};

// The other data on disk, and its maintenance.
struct Upkeep {
  // Null if backups are disabled.
  std::unique_ptr<BackupSchedule> backups;
  std::unique_ptr<PackageStore> packages;
  std::unique_ptr<LogSweeper> log_sweeper;
  std::unique_ptr<PackageSweeper> package_sweeper;
  // Null without receivers.
  std::unique_ptr<Dispatcher> dispatcher;
};

struct Services {
  std::unique_ptr<WorkFiles> work_files;
  std::unique_ptr<EvidenceDesk> evidence;
  std::unique_ptr<EvidenceCalls> evidence_calls;
  std::unique_ptr<SessionDesk> sessions;
  std::unique_ptr<HangReporter> hangs;
  // Declared after everything that streams use and before the services.
  std::unique_ptr<CallPools> pools;
  std::unique_ptr<JobService> jobs;
  std::unique_ptr<PackageService> packages;
  std::unique_ptr<ClusterService> cluster;
  std::unique_ptr<WorkerService> workers;
};

struct App {
  explicit App(const Config& c) : config(c) {}

  Status Start();
  // Writes data that a full disk delayed: the endpoint file and audit lines of
  // rejected calls. Call it about once per second.
  void RetryWrites();
  // Reads the site's tables, prices and receivers again. After an error all are
  // as they were.
  Status Reload();

  const Config config;
  SystemClock clock;
  Access access;
  WatchHub hub;
  Observers observers;
  std::unique_ptr<SiteTables> site;
  Stores stores;
  std::unique_ptr<Coordinator> coordinator;
  Upkeep upkeep;
  Services services;
  std::unique_ptr<http::HttpServer> http;
  std::unique_ptr<RpcServer> rpc;

 private:
  Status OpenAccess();
  Status OpenStores();
  Status LoadCoordinator();
  void ScheduleBackups();
  void SweepLogs();
  Status OpenPackages();
  void MakeServices();
  Status StartNotifying();
  Status ServeRpc();
  Status ServeHttp();
  Status WriteEndpoint();
  bool endpoint_written_ = false;
  Receivers receivers_;
};

}  // namespace lockstep::server

#endif  // LOCKSTEP_SERVER_APP_H_
