// lockstep-worker: builds the object graph and waits for a signal. The ranks
// that it started go on when it leaves; the next one adopts them.

#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <thread>

#include "common/base/clock.h"
#include "common/base/fault_point.h"
#include "common/base/fd.h"
#include "common/base/file.h"
#include "common/base/host_port.h"
#include "common/base/leave.h"
#include "common/base/logging.h"
#include "common/base/random.h"
#include "common/base/version.h"
#include "common/cli/man.h"
#include "common/config/config_file.h"
#include "common/http/metrics.h"
#include "common/http/server.h"
#include "common/model/names.h"
#include "common/os/notify.h"
#include "common/os/process.h"
#include "common/os/procfs.h"
#include "common/pki/credentials.h"
#include "common/rpc/channel.h"
#include "common/rpc/grpc_log.h"
#include "worker/agent/agent.h"
#include "worker/agent/cgroup_tree.h"
#include "worker/agent/host_setup.h"
#include "worker/agent/node_metrics.h"
#include "worker/devices/gpu_sampler.h"
#include "worker/devices/host_capacity.h"

namespace lockstep {
namespace {

struct Flags {
  std::string dir;
  std::string runtime_dir;
  std::string coordinator;
  std::string node;
  std::string address;
  std::string http_address = "127.0.0.1:9464";
  std::string web_config;
  std::optional<double> cpus;
  std::optional<uint64_t> memory;
  std::optional<int32_t> gpus;
  double gpu_sample_seconds = 1;
  std::string pool = "default";
  std::string ca;
  std::string cert;
  std::string key;
  bool insecure_loopback = false;
  std::string shim;
  std::string task_user;
  std::string nvml_library = Nvml::kLibrary;
  std::string log_level = "info";
  std::string allow_faults;
};

// What CLI11 does not see.
Status CheckFlags(const Flags& flags) {
  LOCKSTEP_RETURN_IF_ERROR(
      Annotate(CheckLogLevel(flags.log_level), "--log_level"));
  if (!IsPoolName(flags.pool)) {
    return InvalidArgument(
        "--pool \"{}\" is no name of a pool (at most 63 lower-case letters, "
        "digits or \"-\")",
        flags.pool);
  }
  if (!flags.insecure_loopback &&
      (flags.ca.empty() || flags.cert.empty() || flags.key.empty())) {
    return InvalidArgument(
        "give --ca, --cert and --key (or --insecure_loopback)");
  }
  return OkStatus();
}

// Returns false when the program should end with *exit_code.
bool ParseFlags(int argc, char** argv, Flags* flags, int* exit_code) {
  CLI::App app{"Runs the ranks of jobs on this host.", "lockstep-worker"};
  app.set_version_flag("--version", std::string("lockstep-worker ") + kVersion);
  AddManOption(&app,
               {8, kVersion, "", {"lockstep(1)", "lockstep-coordinator(8)"}},
               &std::cout);
  app.footer(
      "Example:\n"
      "  lockstep-worker --dir /var/lib/lockstep/worker "
      "--coordinator c.example:7443 \\\n"
      "    --ca ca.crt --cert node.crt --key node.key");
  app.add_option("--dir", flags->dir, "Directory of its state")->required();
  app.add_option("--runtime_dir", flags->runtime_dir,
                 "Directory of its sockets; short (DIR/run)");
  app.add_option("--coordinator", flags->coordinator,
                 "HOST:PORT of the coordinator")
      ->required();
  app.add_option("--node", flags->node,
                 "Name of this node (the certificate's, else the host's)");
  app.add_option("--address", flags->address,
                 "IP address that other nodes' ranks reach this host's by (the "
                 "one that leads to the coordinator)");
  app.add_option("--http_address", flags->http_address,
                 "HOST:PORT for /metrics and health; loopback unless TLS")
      ->capture_default_str();
  app.add_option("--web_config", flags->web_config,
                 "TLS, client certificates and passwords of the HTTP port: a "
                 "web-config.yml as Prometheus's exporters take");
  app.add_option("--cpus", flags->cpus, "Cores offered (all)")
      ->check(CLI::Range(0.001, 65536.0));
  app.add_option("--memory", flags->memory,
                 "Memory offered: bytes, or 16GiB (all)")
      ->transform(CLI::AsSizeValue(false));
  app.add_option("--gpus", flags->gpus, "GPUs offered, the first so many (all)")
      ->check(CLI::Range(0, 4096));
  app.add_option("--pool", flags->pool,
                 "Group of nodes that are alike, for metrics")
      ->capture_default_str();
  app.add_option("--ca", flags->ca, "PEM certificate of the cluster's CA");
  app.add_option("--cert", flags->cert, "PEM certificate of this node");
  app.add_option("--key", flags->key, "PEM key of this node");
  app.add_flag("--insecure_loopback", flags->insecure_loopback,
               "No TLS; only to a coordinator on loopback");
  app.add_option("--shim", flags->shim,
                 "Path of lockstep-shim (beside this program)");
  app.add_option("--task_user", flags->task_user,
                 "User that ranks run as; needs root (the daemon's own)");
  app.add_option("--nvml_library", flags->nvml_library,
                 "Library that knows the GPUs")
      ->capture_default_str();
  app.add_option("--gpu_sample_seconds", flags->gpu_sample_seconds,
                 "How often the GPUs are read")
      ->check(CLI::Range(0.1, 60.0))
      ->capture_default_str();
  app.add_option("--log_level", flags->log_level, "debug, info, warn or error")
      ->capture_default_str();
  app.add_option("--allow_faults", flags->allow_faults,
                 "For tests: NAME=crash@N,NAME=error@N");
  AddConfigFile(&app);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    if (e.get_exit_code() == 0) {
      *exit_code = app.exit(e);  // Help or version, to stdout.
      return false;
    }
    fprintf(stderr, "lockstep-worker: %s (see lockstep-worker --help)\n",
            e.what());
    *exit_code = 2;
    return false;
  }
  if (const Status status = CheckFlags(*flags); !status.ok()) {
    fprintf(stderr, "lockstep-worker: %s\n", Message(status).c_str());
    *exit_code = 2;
    return false;
  }
  return true;
}

// Blocks the signals that end the program; call before any thread starts.
Fd BlockSignals() {
  signal(SIGPIPE, SIG_IGN);
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGTERM);
  sigaddset(&set, SIGINT);
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
  return Fd(signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK));
}

// From a signal to the end of the process, whatever hangs: a driver, a file
// system, a coordinator. All that must not be lost is on disk already.
constexpr auto kLeaveTime = std::chrono::milliseconds(1500);

// Waits for a signal on a thread of its own, so that it is seen also while the
// daemon starts: wakes the event loop by `wake`, and ends the process when that
// does not.
void LeaveOnSignal(int signals, int wake) {
  std::thread([signals, wake] {
    pollfd ready{signals, POLLIN, 0};
    while (poll(&ready, 1, -1) != 1) {
    }
    signalfd_siginfo info{};
    (void)!read(signals, &info, sizeof(info));
    LOG_INFO("SIG{}: leaving; ranks go on",
             sigabbrev_np(static_cast<int>(info.ssi_signo)));
    (void)eventfd_write(wake, 1);
    std::this_thread::sleep_for(kLeaveTime);
    LOG_WARN("something hangs: leaving without it");
    _exit(0);
  }).detach();
}

// Everything with a lifetime, destroyed in reverse order.
struct App {
  Notifier notifier = Notifier::FromEnvironment();
  SystemClock clock;
  Fd signals;
  Fd leave;  // eventfd: readable once a signal came.
  Fd lock;
  std::unique_ptr<CgroupTree> cgroups;
  std::unique_ptr<EventLoop> loop;
  std::unique_ptr<GpuSampler> gpus;
  std::unique_ptr<Agent> agent;
  std::unique_ptr<CoordinatorClient> client;
  std::unique_ptr<HttpServer> http;

  Status LockDirectory(const std::string& dir);
  Status DescribeNode(const Flags& flags, NodeInfo* node);
  StatusOr<ChannelOptions> Channel(const Flags& flags, std::string* node);
  void OpenCgroups();
  Status ServeHttp(const Flags& flags);
  Status Start(const Flags& flags);
  std::string StatusLine() const;
  void Turn();
  Status Run();
};

Status App::LockDirectory(const std::string& dir) {
  LOCKSTEP_RETURN_IF_ERROR(RealFileSystem()->MakeDirs(dir, 0711));
  const std::string path = JoinPath(dir, "lock");
  lock.Reset(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  if (!lock) return ErrnoStatus(errno, "opening " + path);
  if (flock(lock.get(), LOCK_EX | LOCK_NB) != 0) {
    return FailedPrecondition("another lockstep-worker runs in {}", dir);
  }
  return OkStatus();
}

StatusOr<ChannelOptions> App::Channel(const Flags& flags, std::string* node) {
  ChannelOptions options;
  options.target = flags.coordinator;
  options.insecure_loopback = flags.insecure_loopback;
  if (flags.insecure_loopback) return options;
  LOCKSTEP_ASSIGN_OR_RETURN(
      options.credentials,
      LoadCredentials(RealFileSystem(), {flags.ca, flags.cert, flags.key},
                      clock.Now().wall));
  const Identity& identity = options.credentials->identity;
  if (identity.kind != Identity::Kind::kWorker) {
    return InvalidArgument("--cert {} is of {}, not of a worker", flags.cert,
                           Describe(identity));
  }
  if (node->empty()) *node = identity.name;
  if (*node != identity.name) {
    return InvalidArgument("--node {} has the certificate of {}", *node,
                           Describe(identity));
  }
  return options;
}

Status App::DescribeNode(const Flags& flags, NodeInfo* node) {
  node->hostname = HostName();
  if (node->name.empty()) node->name = NodeNameOf(node->hostname);
  if (!IsNodeName(node->name)) {
    return InvalidArgument(
        "\"{}\" is no node name (at most 63 lower-case letters, digits or "
        "\"-\"): choose one with --node",
        node->name);
  }
  node->version = kVersion;
  LOCKSTEP_ASSIGN_OR_RETURN(node->boot_id, BootId());
  node->address = flags.address;
  if (node->address.empty()) {
    LOCKSTEP_ASSIGN_OR_RETURN(const HostPort target,
                              ParseHostPort(flags.coordinator));
    LOCKSTEP_ASSIGN_OR_RETURN(node->address, AddressTowards(target));
  }
  LOCKSTEP_ASSIGN_OR_RETURN(const HostCapacity host, ReadHostCapacity());
  node->capacity.cpus = flags.cpus.value_or(host.cpus);
  if (node->capacity.cpus > host.cpus) {
    LOG_WARN("--cpus {}: this daemon may use {} cores, its jobs will share",
             node->capacity.cpus, host.cpus);
  }
  node->capacity.memory_bytes =
      flags.memory ? static_cast<int64_t>(*flags.memory) : host.memory_bytes;
  node->pool = flags.pool;
  GpuSamplerOptions gpu_options;
  gpu_options.library = flags.nvml_library;
  gpu_options.period = Seconds(flags.gpu_sample_seconds);
  gpus = OpenGpusIfThere(gpu_options);
  if (gpus != nullptr) {
    const char* visible = getenv("CUDA_VISIBLE_DEVICES");
    node->gpus = SelectGpus(
        gpus->gpus(),
        visible == nullptr ? std::nullopt : std::optional<std::string>(visible),
        flags.gpus);
  }
  node->capacity.gpus = static_cast<int32_t>(node->gpus.size());
  if (flags.gpus.value_or(0) > node->capacity.gpus) {
    return InvalidArgument("--gpus {}: only {} found on this host", *flags.gpus,
                           node->capacity.gpus);
  }
  if (!node->gpus.empty()) node->capacity.gpu_type = node->gpus[0].model;
  LOCKSTEP_ASSIGN_OR_RETURN(node->incarnation.counter,
                            NextIncarnation(RealFileSystem(), flags.dir));
  node->incarnation.nonce = RandomUint64();
  return OkStatus();
}

void App::OpenCgroups() {
  CgroupPlace place;
  place.self = ReadProcFile("/proc/self/cgroup").value_or(std::string());
  place.pid = ::getpid();
  // systemd says both to its services.
  place.managed =
      getenv("INVOCATION_ID") != nullptr || getenv("NOTIFY_SOCKET") != nullptr;
  auto opened = CgroupTree::Open(RealCgroupFiles(), "/sys/fs/cgroup", place);
  if (opened.ok()) {
    cgroups = *std::move(opened);
  } else {
    LOG_INFO("{}", Message(opened.status()));
  }
}

Status App::ServeHttp(const Flags& flags) {
  HttpServerOptions options;
  options.address = flags.http_address;
  LOCKSTEP_ASSIGN_OR_RETURN(options.web, LoadWebConfig(flags.web_config));
  LOCKSTEP_ASSIGN_OR_RETURN(http, HttpServer::Create(options));
  StandardPages pages;
  pages.program = "lockstep-worker";
  pages.collectables = {agent->metrics()};
  pages.ready = [this] { return agent->Ready(); };
  AddStandardPages(pages, http.get());
  AddMetricsPage("/metrics/dcgm",
                 {std::make_shared<DcgmMetrics>(agent->metrics())}, http.get());
  AddMetricsPage("/metrics/node", {std::make_shared<NodeMetrics>()},
                 http.get());
  LOCKSTEP_RETURN_IF_ERROR(http->Start());
  agent->SetHttpAddress(http->address(), http->tls());
  return OkStatus();
}

Status App::Start(const Flags& flags) {
  LOCKSTEP_RETURN_IF_ERROR(LockDirectory(flags.dir));
  AgentConfig config;
  config.node.name = flags.node;
  LOCKSTEP_ASSIGN_OR_RETURN(const ChannelOptions channel_options,
                            Channel(flags, &config.node.name));
  LOCKSTEP_ASSIGN_OR_RETURN(const auto channel, MakeChannel(channel_options));
  LOCKSTEP_RETURN_IF_ERROR(DescribeNode(flags, &config.node));
  config.dir = flags.dir;
  config.runtime_dir = flags.runtime_dir.empty() ? JoinPath(flags.dir, "run")
                                                 : flags.runtime_dir;
  LOCKSTEP_ASSIGN_OR_RETURN(config.shim_program, ShimPath(flags.shim));
  if (!flags.task_user.empty()) {
    LOCKSTEP_ASSIGN_OR_RETURN(config.user, FindUser(flags.task_user));
  }
  config.environment = FromStrings(CurrentEnvironment());
  PortRange ephemeral{32768, 60999};  // Linux's default.
  if (const auto text = ReadProcFile("/proc/sys/net/ipv4/ip_local_port_range");
      text.ok()) {
    LOCKSTEP_ASSIGN_OR_RETURN(ephemeral, ParsePortRange(*text));
  }
  config.port_ranges = LeasableRanges(ephemeral);

  OpenCgroups();
  config.cgroups = cgroups.get();
  config.node.limits_enforced = cgroups != nullptr;

  const NodeInfo node = config.node;
  LOCKSTEP_ASSIGN_OR_RETURN(loop, EventLoop::Create(&clock));
  LOCKSTEP_ASSIGN_OR_RETURN(agent, Agent::Create(std::move(config), loop.get(),
                                                 RealFileSystem(), gpus.get()));
  LOCKSTEP_RETURN_IF_ERROR(ServeHttp(flags));
  client = MakeGrpcCoordinatorClient(channel, agent->ClientEvents());
  LOCKSTEP_RETURN_IF_ERROR(agent->Start(client.get()));
  const nlohmann::json endpoint = {
      {"pid", ::getpid()}, {"node", node.name}, {"http", http->address()}};
  LOCKSTEP_RETURN_IF_ERROR(RealFileSystem()->WriteAtomic(
      JoinPath(flags.dir, "endpoint.json"), endpoint.dump() + "\n"));
  LOG_INFO("node {} at {} offers {}; HTTP on {}", node.name, node.address,
           Describe(node.capacity), http->address());
  if (geteuid() == 0 && flags.task_user.empty()) {
    LOG_WARN("ranks run as root: name another user with --task_user");
  }
  return OkStatus();
}

// For the service manager.
std::string App::StatusLine() const {
  int64_t ranks = 0;
  for (const auto& [key, gang] : agent->core().gangs()) {
    for (const RankStatus& rank : gang.status.ranks) {
      if (rank.pid > 0 && !rank.exit) ++ranks;
    }
  }
  const Status ready = agent->Ready();
  return fmt::format(
      "{}; {} ranks of {} jobs here",
      ready.ok() ? "connected with the coordinator" : Message(ready), ranks,
      agent->core().gangs().size());
}

// A timer of the event loop: the watchdog hears from it alone.
void App::Turn() {
  const MonoTime now = loop->Now().mono;
  notifier.Turn(now);
  notifier.SetStatus(StatusLine());
  const Duration wait =
      std::min<Duration>(std::chrono::seconds(1), notifier.longest_turn());
  loop->At(now + wait, [this] { Turn(); });
}

Status App::Run() {
  if (notifier.enabled()) {
    notifier.SetStatus(StatusLine());
    notifier.Ready(loop->Now().mono);
    Turn();
  }
  LOCKSTEP_RETURN_IF_ERROR(loop->Watch(leave.get(), [this] { loop->Stop(); }));
  loop->Run();
  notifier.Stopping();
  loop->Unwatch(leave.get());
  // Without a signal, when another daemon speaks for this node: a file system
  // that hangs must not keep the program either. SIGALRM ends it.
  alarm(10);
  return agent->fatal();
}

Status RunWorker(const Flags& flags) {
  InitLogging("worker", flags.log_level);
  RedirectGrpcLog(GrpcLog::kToOurs);
  if (!flags.allow_faults.empty()) {
    LOCKSTEP_RETURN_IF_ERROR(EnableFaults(flags.allow_faults));
  }
  App app;
  app.signals = BlockSignals();
  app.leave.Reset(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  LeaveOnSignal(app.signals.get(), app.leave.get());
  LOCKSTEP_RETURN_IF_ERROR(app.Start(flags));
  return app.Run();
}

}  // namespace
}  // namespace lockstep

int main(int argc, char** argv) {
  lockstep::Flags flags;
  int exit_code = 0;
  if (!lockstep::ParseFlags(argc, argv, &flags, &exit_code)) return exit_code;
  const lockstep::Status status = lockstep::RunWorker(flags);
  if (!status.ok()) {
    fprintf(stderr, "lockstep-worker: %s\n", lockstep::Message(status).c_str());
  }
  lockstep::LeaveProcess(status.ok() ? 0 : 1);
}
