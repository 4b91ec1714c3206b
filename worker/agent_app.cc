#include "worker/agent_app.h"

#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "common/base/file.h"
#include "common/base/host_port.h"
#include "common/base/logging.h"
#include "common/base/random.h"
#include "common/base/version.h"
#include "common/http/metrics.h"
#include "common/model/names.h"
#include "common/os/process.h"
#include "common/os/procfs.h"
#include "common/pki/credentials.h"
#include "common/pki/validity.h"
#include "worker/agent/checks/gpu_checker.h"
#include "worker/agent/host/host_setup.h"
#include "worker/agent/metrics/node_metrics.h"
#include "worker/agent/sessions/session_client.h"
#include "worker/devices/host_capacity.h"
#include "worker/evidence/stacks.h"

namespace lockstep::worker {
namespace {

// For the trial of the container engine, and what the start waits for it.
constexpr auto kEngineTime = std::chrono::seconds(60);
constexpr auto kEngineWait = std::chrono::seconds(1);

}  // namespace

Status AgentApp::LockDirectory(const std::string& dir) {
  LOCKSTEP_RETURN_IF_ERROR(RealFileSystem()->MakeDirs(dir, 0711));
  const std::string path = JoinPath(dir, "lock");
  lock.Reset(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  if (!lock) return ErrnoStatus(errno, "opening " + path);
  if (flock(lock.get(), LOCK_EX | LOCK_NB) != 0) {
    return FailedPrecondition("another lockstep-worker uses {}", dir);
  }
  return OkStatus();
}

StatusOr<ChannelOptions> AgentApp::Channel(const AgentFlags& flags,
                                           std::string* node) {
  ChannelOptions options;
  options.target = flags.coordinator;
  options.insecure_loopback = flags.insecure_loopback;
  if (flags.insecure_loopback) return options;
  LOCKSTEP_ASSIGN_OR_RETURN(
      options.credentials,
      pki::LoadCredentials(RealFileSystem(), {flags.ca, flags.cert, flags.key},
                           clock.Now().wall));
  const pki::Identity& identity = options.credentials->identity;
  if (identity.kind != pki::Identity::Kind::kWorker) {
    return InvalidArgument("--cert {} belongs to {}, not to a worker",
                           flags.cert, Describe(identity));
  }
  if (node->empty()) *node = identity.name;
  if (*node != identity.name) {
    return InvalidArgument("--node {}: the certificate belongs to {}", *node,
                           Describe(identity));
  }
  return options;
}

namespace {

// For StreamOptions::check_dates: the daemon's own certificate may expire while
// it runs, and gRPC does not report why it refuses the coordinator's.
Status CheckDates(const ChannelOptions& channel, const std::string& path,
                  const Status& ended) {
  const WallTime now = SystemClock().Now().wall;
  LOCKSTEP_RETURN_IF_ERROR(pki::CheckCertificateDates(
      channel.credentials->certificate, "the certificate " + path,
      "issue a new one with `lockstep cert issue` and start the worker again",
      now));
  if (Message(ended).find("certificate verify failed") == std::string::npos) {
    return OkStatus();
  }
  return pki::CheckServerDates(channel.target, now,
                               std::chrono::milliseconds(500));
}

}  // namespace

Status AgentApp::DescribeNode(const AgentFlags& flags, NodeInfo* node) {
  node->hostname = agent::HostName();
  if (node->name.empty()) node->name = agent::NodeNameOf(node->hostname);
  if (!IsNodeName(node->name)) {
    return InvalidArgument(
        "\"{}\" is not a node name (at most 63 lower-case letters, digits or "
        "\"-\"): choose one with --node",
        node->name);
  }
  node->version = kVersion;
  LOCKSTEP_ASSIGN_OR_RETURN(node->boot_id, BootId());
  node->address = flags.address;
  if (node->address.empty()) {
    LOCKSTEP_ASSIGN_OR_RETURN(const HostPort target,
                              ParseHostPort(flags.coordinator));
    LOCKSTEP_ASSIGN_OR_RETURN(node->address, agent::AddressTowards(target));
  }
  LOCKSTEP_ASSIGN_OR_RETURN(const devices::HostCapacity host,
                            devices::ReadHostCapacity(flags.rank_cgroup));
  node->capacity.cpus = flags.cpus.value_or(host.cpus);
  if (node->capacity.cpus > host.cpus) {
    LOG_WARN("--cpus {}: jobs will share the {} cores that this daemon may use",
             node->capacity.cpus, host.cpus);
  }
  node->capacity.memory_bytes =
      flags.memory ? static_cast<int64_t>(*flags.memory) : host.memory_bytes;
  node->pool = flags.pool;
  devices::GpuSamplerOptions gpu_options;
  gpu_options.library = flags.nvml_library;
  gpu_options.period = Seconds(flags.gpu_sample_seconds);
  gpus = OpenGpusIfThere(gpu_options);
  if (gpus != nullptr) {
    const char* visible = getenv("CUDA_VISIBLE_DEVICES");
    node->gpus = devices::SelectGpus(
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
  LOCKSTEP_ASSIGN_OR_RETURN(
      node->incarnation.counter,
      agent::NextIncarnation(RealFileSystem(), flags.dir));
  node->incarnation.nonce = RandomUint64();
  return OkStatus();
}

void AgentApp::OpenCgroups(const AgentFlags& flags) {
  agent::CgroupPlace place;
  place.self = ReadProcFile("/proc/self/cgroup").value_or(std::string());
  place.pid = ::getpid();
  // systemd sets both for its services.
  place.managed =
      getenv("INVOCATION_ID") != nullptr || getenv("NOTIFY_SOCKET") != nullptr;
  place.ranks = flags.rank_cgroup;
  auto opened = agent::CgroupTree::Open(agent::RealCgroupFiles(),
                                        "/sys/fs/cgroup", place);
  if (opened.ok()) {
    cgroups = *std::move(opened);
  } else {
    LOG_INFO("{}", Message(opened.status()));
    no_limits = Message(opened.status());
    // The text stands next to a field of that name.
    constexpr std::string_view kPrefix = "limits are not enforced: ";
    if (no_limits.starts_with(kPrefix)) no_limits.erase(0, kPrefix.size());
  }
}

void AgentApp::FindEngine(const AgentFlags& flags,
                          const agent::AgentConfig& config) {
  if (flags.container_engine == "none") return;
  if (geteuid() == 0 && !config.daemon.user && !flags.container_root) {
    LOG_INFO(
        "no containers: ranks run as root, which containers need "
        "--container-root for");
    return;
  }
  container::EngineOptions options;
  options.engine = flags.container_engine;
  options.options = flags.container_options;
  options.environment = config.daemon.environment;
  options.init = config.ranks.shim_program;
  options.directory = JoinPath(config.daemon.dir, "container-trial");
  options.want_limits = config.cgroups != nullptr;
  search = std::make_unique<container::EngineSearch>(
      std::move(options), kEngineTime,
      [this](container::EngineSearch::Result result) {
        auto shared = std::make_shared<container::EngineSearch::Result>(
            std::move(result));
        loop->Post([this, shared] { UseEngine(std::move(*shared)); });
      });
}

void AgentApp::UseEngine(container::EngineSearch::Result found) {
  if (found.ok()) {
    agent->SetContainerEngine(*std::move(found));
  } else {
    LOG_INFO("no containers: {}", Message(found.status()));
  }
}

Status AgentApp::ServeHttp(const AgentFlags& flags) {
  http::HttpServerOptions options;
  options.address = flags.http_address;
  LOCKSTEP_ASSIGN_OR_RETURN(options.web, http::LoadWebConfig(flags.web_config));
  if (!flags.http_token_file.empty()) {
    LOCKSTEP_ASSIGN_OR_RETURN(
        options.token, http::AccessToken::Open(flags.http_token_file, &clock));
  }
  LOCKSTEP_ASSIGN_OR_RETURN(http, http::HttpServer::Create(options));
  http::StandardPages pages;
  pages.program = "lockstep-worker";
  pages.collectables = {agent->metrics()};
  pages.ready = [this] { return agent->Ready(); };
  AddStandardPages(pages, http.get());
  http::AddMetricsPage(
      "/metrics/dcgm", {std::make_shared<agent::DcgmMetrics>(agent->metrics())},
      http.get(), "this worker offers no GPU, or its driver does not answer");
  http::AddMetricsPage("/metrics/node",
                       {std::make_shared<agent::NodeMetrics>()}, http.get());
  LOCKSTEP_RETURN_IF_ERROR(http->Start());
  agent->SetHttpAddress(http->address(), http->tls());
  return OkStatus();
}

Status AgentApp::Start(const AgentFlags& flags) {
  LOCKSTEP_RETURN_IF_ERROR(LockDirectory(flags.dir));
  agent::AgentConfig config;
  config.daemon.node.name = flags.node;
  LOCKSTEP_ASSIGN_OR_RETURN(const ChannelOptions channel_options,
                            Channel(flags, &config.daemon.node.name));
  LOCKSTEP_ASSIGN_OR_RETURN(const auto channel, MakeChannel(channel_options));
  LOCKSTEP_RETURN_IF_ERROR(DescribeNode(flags, &config.daemon.node));
  config.daemon.dir = flags.dir;
  config.daemon.runtime_dir = flags.runtime_dir.empty()
                                  ? JoinPath(flags.dir, "run")
                                  : flags.runtime_dir;
  LOCKSTEP_ASSIGN_OR_RETURN(config.ranks.shim_program,
                            agent::ShimPath(flags.shim));
  if (!flags.task_user.empty()) {
    LOCKSTEP_ASSIGN_OR_RETURN(config.daemon.user,
                              agent::FindUser(flags.task_user));
  }
  config.allow_sessions = flags.exec == "on";
  LOCKSTEP_ASSIGN_OR_RETURN(
      config.gpu_check,
      agent::FindGpuCheck(flags.gpu_check, config.ranks.shim_program));
  config.daemon.node.checks_gpus =
      !config.gpu_check.empty() && !config.daemon.node.gpus.empty();
  config.daemon.environment = agent::FromStrings(CurrentEnvironment());
  config.ranks.inherit = flags.inherit;
  config.ranks.first_sign = Seconds(flags.first_sign_seconds);
  config.ranks.stack_tools =
      evidence::FindStackTools(flags.py_spy, config.ranks.shim_program,
                               config.daemon.environment["PATH"]);
  agent::PortRange ephemeral{32768, 60999};  // Linux's default.
  if (const auto text = ReadProcFile("/proc/sys/net/ipv4/ip_local_port_range");
      text.ok()) {
    LOCKSTEP_ASSIGN_OR_RETURN(ephemeral, agent::ParsePortRange(*text));
  }
  config.prepare.port_ranges = LeasableRanges(ephemeral);
  if (!flags.ports.empty()) {
    LOCKSTEP_ASSIGN_OR_RETURN(config.prepare.port_ranges,
                              agent::ParsePortList(flags.ports));
  }

  OpenCgroups(flags);
  config.cgroups = cgroups.get();
  config.daemon.node.limits_enforced = cgroups != nullptr;
  config.daemon.node.limits_message = no_limits;
  if (channel_options.credentials) {
    config.stream.check_dates = [channel_options,
                                 path = flags.cert](const Status& ended) {
      return CheckDates(channel_options, path, ended);
    };
    config.daemon.node.certificate_end_time =
        channel_options.credentials->not_after;
  }
  package_source = agent::MakeGrpcPackageSource(channel);
  package::PackageCacheOptions cache;
  cache.dir = JoinPath(flags.dir, "packages");
  cache.limit_bytes = flags.package_cache;
  LOCKSTEP_ASSIGN_OR_RETURN(
      packages, package::PackageCache::Open(cache, package_source.get()));
  config.prepare.packages = packages.get();

  const NodeInfo node = config.daemon.node;
  LOCKSTEP_ASSIGN_OR_RETURN(loop, agent::EventLoop::Create(&clock));
  FindEngine(flags, config);
  LOCKSTEP_ASSIGN_OR_RETURN(agent,
                            agent::Agent::Create(std::move(config), loop.get(),
                                                 RealFileSystem(), gpus.get()));
  LOCKSTEP_RETURN_IF_ERROR(ServeHttp(flags));
  // Neighbours know the last one, also while the coordinator is away.
  if (auto listener = agent::ProbeListener::Listen(
          node.address, agent::LoadProbePort(RealFileSystem(), flags.dir));
      listener.ok()) {
    agent::SaveProbePort(RealFileSystem(), flags.dir, (*listener)->port());
    agent->SetProbeListener(*std::move(listener));
  } else {
    LOG_WARN(
        "other hosts cannot probe this host, so they detect its failure late: "
        "{}",
        Message(listener.status()));
  }
  agent->SetSessionClient(agent::MakeGrpcSessionClient(channel));
  client = MakeGrpcCoordinatorClient(channel, agent->ClientEvents());
  // An engine that is quick is in the first Register; one that hangs keeps
  // nothing else.
  if (search != nullptr) {
    if (auto found = search->Take(kEngineWait)) UseEngine(*std::move(found));
  }
  LOCKSTEP_RETURN_IF_ERROR(agent->Start(client.get()));
  const nlohmann::json endpoint = {
      {"pid", ::getpid()}, {"node", node.name}, {"http", http->address()}};
  LOCKSTEP_RETURN_IF_ERROR(RealFileSystem()->WriteAtomic(
      JoinPath(flags.dir, "endpoint.json"), endpoint.dump() + "\n"));
  LOG_INFO("node {} at {} offers {}; HTTP on {}", node.name, node.address,
           Describe(node.capacity), http->address());
  if (geteuid() == 0 && flags.task_user.empty()) {
    LOG_WARN("ranks run as root: choose another user with --task-user");
  }
  return OkStatus();
}

// For the service manager.
std::string AgentApp::StatusLine() const {
  int64_t ranks = 0;
  for (const auto& [key, gang] : agent->core().gangs()) {
    for (const RankStatus& rank : gang.status.ranks) {
      if (rank.pid > 0 && !rank.exit) ++ranks;
    }
  }
  const Status ready = agent->Ready();
  return fmt::format(
      "{}; running {} ranks of {} jobs",
      ready.ok() ? "connected to the coordinator" : Message(ready), ranks,
      agent->core().gangs().size());
}

// Runs as a timer of the event loop, so the watchdog detects a stuck loop.
void AgentApp::Turn() {
  const MonoTime now = loop->Now().mono;
  notifier.Turn(now);
  notifier.SetStatus(StatusLine());
  const Duration wait =
      std::min<Duration>(std::chrono::seconds(1), notifier.longest_turn());
  loop->At(now + wait, [this] { Turn(); });
}

Status AgentApp::Run() {
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

}  // namespace lockstep::worker
