// lockstep-coordinator: builds the object graph and waits for a signal.

#include <malloc.h>
#include <poll.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <iostream>

#include "common/base/clock.h"
#include "common/base/fault_point.h"
#include "common/base/fd.h"
#include "common/base/file.h"
#include "common/base/leave.h"
#include "common/base/logging.h"
#include "common/os/notify.h"
#include "common/os/signals.h"
#include "common/rpc/grpc_log.h"
#include "server/app.h"
#include "server/notify/delivery.h"
#include "server/store/sqlite_store.h"
#include "server/store_commands.h"

namespace lockstep::server {
namespace {

using std::chrono_literals::operator""ms;
using std::chrono_literals::operator""s;

constexpr Duration kTick = 100ms;
// Arenas of glibc's malloc. Each keeps freed memory, and the default is several
// dozen. The threads here wait for the disk, not for memory.
constexpr int kMallocArenas = 2;
// Maximum age of the status in the service manager.
constexpr Duration kStatusInterval = 2s;
// Resolution of the times of first and missing steps.
constexpr Duration kLookInterval = 1s;

// The status for the service manager.
std::string StatusLine(Coordinator* coordinator) {
  const CoordinatorStats stats = coordinator->queries()->Stats();
  const int64_t queued = stats.jobs.at(JobState::kQueued);
  int64_t active = 0, nodes = 0;
  for (const auto& [state, count] : stats.jobs) {
    if (!IsFinal(state) && state != JobState::kQueued) active += count;
  }
  for (const auto& [state, count] : stats.nodes) nodes += count;
  return fmt::format("{}{} jobs active, {} queued; {} of {} nodes ready",
                     coordinator->queries()->store_healthy()
                         ? ""
                         : "THE STORE CANNOT WRITE, commands are rejected; ",
                     active, queued, stats.nodes.at(NodeState::kReady), nodes);
}

// Returns true for a termination signal. Handles a reload itself.
bool TakeSignal(App* app, const Fd& signals) {
  signalfd_siginfo info{};
  if (::read(signals.get(), &info, sizeof(info)) != sizeof(info)) return false;
  if (info.ssi_signo != SIGHUP) {
    LOG_INFO("SIG{}: stopping; running jobs continue",
             sigabbrev_np(static_cast<int>(info.ssi_signo)));
    return true;
  }
  const Status status = app->Reload();
  if (status.ok()) {
    LOG_INFO("SIGHUP: reloaded the site's tables, prices and receivers");
  } else {
    LOG_ERROR("SIGHUP: tables, prices and receivers stay unchanged: {}",
              Message(status));
  }
  return false;
}

// Ticks until a signal arrives. Only this loop pings the watchdog. Aborted:
// another coordinator took over the store.
Status RunUntilSignal(App* app, const Fd& signals, Notifier* notifier) {
  Coordinator* const coordinator = app->coordinator.get();
  pollfd waiting{signals.get(), POLLIN, 0};
  MonoTime next_status, next_look;
  for (;;) {
    const int ready = ::poll(
        &waiting, 1, static_cast<int>(kTick / std::chrono::milliseconds(1)));
    if (ready > 0 && TakeSignal(app, signals)) return OkStatus();
    coordinator->Tick();
    LOCKSTEP_RETURN_IF_ERROR(coordinator->queries()->taken_over());
    const MonoTime now = app->clock.Now().mono;
    notifier->Turn(now);
    if (now >= next_look) {
      next_look = now + kLookInterval;
      const CoordinatorView view = coordinator->queries()->View(kSeriesLinger);
      app->observers.ledger.Look(view);
      app->stores.history->Look(view);
      app->services.packages->CancelIdle(now);
      app->services.work_files->CancelIdle(now);
      app->observers.readers->EndStalled(now);
      app->RetryWrites();
    }
    if (notifier->enabled() && now >= next_status) {
      next_status = now + kStatusInterval;
      notifier->SetStatus(StatusLine(coordinator));
    }
  }
}

// Sends one to the receiver `config.notify_test`.
Status TestNotification(const Config& config) {
  if (config.notify_file.empty()) {
    return InvalidArgument("--notify-test needs --notify FILE");
  }
  LOCKSTEP_ASSIGN_OR_RETURN(
      const Receivers receivers,
      LoadReceivers(RealFileSystem(), config.notify_file));
  const auto receiver = std::find_if(
      receivers.all.begin(), receivers.all.end(),
      [&](const Receiver& known) { return known.name == config.notify_test; });
  if (receiver == receivers.all.end()) {
    return NotFound("{} has no receiver {}", config.notify_file,
                    config.notify_test);
  }
  const WallTime now = SystemClock().Now().wall;
  Notification test;
  test.id = fmt::format("test-{}", ToUnixNanos(now));
  test.time = now;
  test.cluster = config.cluster;
  test.owner = "user/" + config.notify_test;
  test.text = "If you read this, notifications arrive.";
  test.url = receivers.url;
  const std::atomic<bool> stop{false};
  return Annotate(Deliver(*receiver, test, now, stop),
                  "receiver " + config.notify_test);
}

Status Run(Config config) {
  Notifier notifier = Notifier::FromEnvironment();
  InitLogging("coordinator", config.log_level);
  RedirectGrpcLog(GrpcLog::kToOurs);
  if (!config.allow_faults.empty()) {
    if (!config.insecure_loopback && !config.listen.starts_with("127.")) {
      return InvalidArgument(
          "--allow-faults is for tests: it is not allowed with --listen {}",
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
  if (!config.notify_test.empty()) return TestNotification(config);
  // SIGHUP has it read its tables again.
  const Fd signals = BlockSignals({SIGTERM, SIGINT, SIGHUP});
  App app(config);
  LOCKSTEP_RETURN_IF_ERROR(app.Start());
  notifier.SetStatus(StatusLine(app.coordinator.get()));
  notifier.Ready(app.clock.Now().mono);
  const Status end = RunUntilSignal(&app, signals, &notifier);
  notifier.Stopping();
  app.hub.Close();
  app.stores.logs->Close();
  app.stores.history->SaveAll(2s);
  app.rpc->SetServing(false);
  app.coordinator->sessions()->CloseStreams();
  // Streams are ended, and calls take milliseconds. A client that only keeps
  // its connection is not awaited.
  app.rpc->Shutdown(500ms);
  return end;
}

}  // namespace
}  // namespace lockstep::server

int main(int argc, char** argv) {
  int exit_code = 0;
  if (lockstep::server::RunStoreCommand(argc, argv, std::cout, std::cerr,
                                        &exit_code)) {
    return exit_code;
  }
  lockstep::server::Config config;
  if (!lockstep::server::ParseFlags(argc, argv, &config, &exit_code))
    return exit_code;
  // Before any thread starts.
  mallopt(M_ARENA_MAX, lockstep::server::kMallocArenas);
  const lockstep::Status status = lockstep::server::Run(std::move(config));
  if (!status.ok()) {
    fprintf(stderr, "%slockstep-coordinator: %s\n",
            std::string(lockstep::ErrorPrefix()).c_str(),
            lockstep::Message(status).c_str());
  }
  lockstep::LeaveProcess(lockstep::DaemonExitCode(status));
}
