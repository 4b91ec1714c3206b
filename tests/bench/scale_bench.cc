// Q3, small form: 200 worker daemons, simulated by one process (a TLS
// connection, a stream and a beat every 0.5 s each), against one coordinator:
// its CPU time over 30 s and its resident memory, beside a bare gRPC server
// that answers the same frames under the same TLS. Then 20 of the streams fall
// silent: each must be UNKNOWN within the lease and two ticks, and no other.
#include <grpcpp/grpcpp.h>
#include <unistd.h>

#include <atomic>
#include <iostream>
#include <memory>
#include <thread>

#include "common/base/file.h"
#include "common/base/random.h"
#include "common/pki/ca.h"
#include "common/rpc/channel.h"
#include "common/wire/worker_wire.h"
#include "lockstep/v1/worker.grpc.pb.h"
#include "tests/bench/bench_cluster.h"
#include "tests/bench/report.h"

namespace lockstep {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr int kWorkers = 200;
constexpr int kSilent = 20;
constexpr int kRounds = 3;
constexpr auto kBeat = milliseconds(500);
constexpr auto kWindow = seconds(30);
constexpr auto kLease = seconds(3);

std::string NodeName(int i) { return "sim" + std::to_string(i); }

// Answers each beat; what a server costs that does nothing else.
class Echo final : public v1::WorkerService::Service {
  grpc::Status Connect(
      grpc::ServerContext*,
      grpc::ServerReaderWriter<v1::CoordinatorMessage, v1::WorkerMessage>*
          stream) override {
    v1::WorkerMessage message;
    while (stream->Read(&message)) {
      v1::CoordinatorMessage answer;
      if (message.has_register_()) {
        answer.mutable_welcome()->set_epoch(1);
      } else {
        answer.mutable_heartbeat_ack()->set_sequence(
            message.heartbeat().sequence());
      }
      if (!stream->Write(answer)) break;
    }
    return grpc::Status::OK;
  }
};

// `scale_bench echo TLS_DIR`: serves until stdin ends; prints its port.
int ServeEcho(const std::string& dir) {
  const auto read = [&](const char* name) {
    return RealFileSystem()->Read(dir + "/" + name).value_or("");
  };
  grpc::SslServerCredentialsOptions options(
      GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY);
  options.pem_root_certs = read("ca.crt");
  options.pem_key_cert_pairs.push_back({read("tls.key"), read("tls.crt")});
  Echo echo;
  grpc::ServerBuilder builder;
  int port = 0;
  builder.AddListeningPort("127.0.0.1:0", grpc::SslServerCredentials(options),
                           &port);
  builder.RegisterService(&echo);
  const auto server = builder.BuildAndStart();
  if (!server) return 1;
  fmt::print("{}\n", port);
  fflush(stdout);
  char byte;
  while (::read(0, &byte, 1) > 0) {
  }
  server->Shutdown(std::chrono::system_clock::now());
  return 0;
}

// One daemon: a thread that registers and beats until told to stop, or to
// fall silent with its stream open.
class Simulated {
 public:
  Simulated(const std::string& name, std::shared_ptr<grpc::Channel> channel,
            int64_t delay_ms)
      : name_(name), channel_(std::move(channel)), thread_([this, delay_ms] {
          std::this_thread::sleep_for(milliseconds(delay_ms));
          Run();
        }) {}
  ~Simulated() {
    stop_ = true;
    thread_.join();
  }
  void FallSilent() { silent_ = true; }
  int64_t beats() const { return beats_; }

 private:
  void Run() {
    const auto stub = v1::WorkerService::NewStub(channel_);
    grpc::ClientContext context;
    const auto stream = stub->Connect(&context);
    Registration registration;
    registration.node.name = name_;
    registration.node.incarnation = {1, 7};
    registration.node.boot_id = name_;
    registration.node.hostname = name_;
    registration.node.version = "sim";
    registration.node.address = "127.0.0.1";
    registration.node.capacity = {4, int64_t{8} << 30, 0, ""};
    v1::WorkerMessage message;
    *message.mutable_register_() = ToProto(registration);
    v1::CoordinatorMessage answer;
    if (!stream->Write(message) || !stream->Read(&answer)) return;
    auto next = std::chrono::steady_clock::now();
    for (uint64_t sequence = 1; !stop_; next += kBeat) {
      if (!silent_) {
        v1::WorkerMessage beat;
        NodeHeartbeat sent;
        sent.sequence = sequence++;
        sent.readings.cpu_utilization = 0.25;
        sent.readings.memory_available_bytes = 1 << 30;
        *beat.mutable_heartbeat() = ToProto(sent);
        if (!stream->Write(beat)) return;
        do {
          if (!stream->Read(&answer)) return;
        } while (!answer.has_heartbeat_ack());
        ++beats_;
      }
      std::this_thread::sleep_until(next + kBeat);
    }
    context.TryCancel();
    while (stream->Read(&answer)) {
    }
    (void)stream->Finish();
  }

  const std::string name_;
  const std::shared_ptr<grpc::Channel> channel_;
  std::atomic<bool> stop_{false};
  std::atomic<bool> silent_{false};
  std::atomic<int64_t> beats_{0};
  std::thread thread_;
};

using Fleet = std::vector<std::unique_ptr<Simulated>>;

StatusOr<Fleet> StartFleet(const CertificateAuthority& ca,
                           const std::string& target) {
  Fleet fleet;
  const WallTime now = SystemClock().Now().wall;
  for (int i = 0; i < kWorkers; ++i) {
    LeafRequest request;
    request.identity = WorkerIdentity(ca.cluster(), NodeName(i));
    LOCKSTEP_ASSIGN_OR_RETURN(const KeyAndCertificate leaf,
                              ca.Issue(request, now));
    ChannelOptions options;
    options.target = target;
    options.credentials.emplace();
    options.credentials->ca = ca.certificate();
    options.credentials->certificate = leaf.certificate;
    options.credentials->key = leaf.key;
    options.credentials->identity = request.identity;
    LOCKSTEP_ASSIGN_OR_RETURN(auto channel, MakeChannel(options));
    fleet.push_back(
        std::make_unique<Simulated>(NodeName(i), channel, i * 1000 / kWorkers));
  }
  return fleet;
}

// CPU seconds of `pid` while the fleet beats.
StatusOr<double> Cost(pid_t pid, const Fleet& fleet) {
  std::this_thread::sleep_for(seconds(3));
  LOCKSTEP_ASSIGN_OR_RETURN(const ProcessUse before, UseOf(pid));
  int64_t beats = 0;
  for (const auto& worker : fleet) beats -= worker->beats();
  std::this_thread::sleep_for(kWindow);
  LOCKSTEP_ASSIGN_OR_RETURN(const ProcessUse after, UseOf(pid));
  for (const auto& worker : fleet) beats += worker->beats();
  const int64_t expected = kWorkers * (kWindow / kBeat);
  if (beats < expected * 9 / 10) {
    return Internal("{} of {} beats were answered", beats, expected);
  }
  return after.cpu_seconds - before.cpu_seconds;
}

struct Peer {
  Process process;
  Fd stdin_end;
  std::string target;
};

StatusOr<Peer> StartPeer(const std::string& tls_dir) {
  LOCKSTEP_ASSIGN_OR_RETURN(Pipe in, MakePipe());
  LOCKSTEP_ASSIGN_OR_RETURN(Pipe out, MakePipe());
  SpawnOptions spawn;
  spawn.program = BenchProgram("scale_bench");
  spawn.argv = {spawn.program, "echo", tls_dir};
  spawn.env = CurrentEnvironment();
  spawn.stdin_fd = in.read.get();
  spawn.stdout_fd = out.write.get();
  spawn.stderr_fd = 2;
  Peer peer;
  LOCKSTEP_ASSIGN_OR_RETURN(peer.process, Spawn(spawn));
  peer.stdin_end = std::move(in.write);
  out.write.Reset();
  std::string port;
  char byte;
  while (::read(out.read.get(), &byte, 1) == 1 && byte != '\n') port += byte;
  if (port.empty()) return Internal("the bare server did not start");
  peer.target = "127.0.0.1:" + port;
  return peer;
}

// How long until exactly the silent ones are UNKNOWN.
StatusOr<double> Detect(Client* client, Fleet* fleet) {
  for (int i = 0; i < kSilent; ++i) (*fleet)[i]->FallSilent();
  const int64_t start = MonotonicNanos();
  for (;;) {
    LOCKSTEP_ASSIGN_OR_RETURN(const auto nodes, client->ListNodes());
    int silent = 0;
    for (const v1::Node& node : nodes) {
      if (node.state() == v1::NODE_STATE_READY) continue;
      const bool expected = node.name().rfind("sim", 0) == 0 &&
                            atoi(node.name().c_str() + 3) < kSilent;
      if (!expected) return Internal("{} is not READY", node.name());
      ++silent;
    }
    const double took = static_cast<double>(MonotonicNanos() - start) / 1e9;
    if (silent == kSilent) return took;
    if (took > 30) return DeadlineExceeded("{} of {} noticed", silent, kSilent);
    std::this_thread::sleep_for(milliseconds(20));
  }
}

Status Run(const std::string& json) {
  LocalClusterOptions options;
  options.workers = 1;
  options.cpus = 2;
  options.gpus = 0;
  LOCKSTEP_ASSIGN_OR_RETURN(const auto bench, BenchCluster::Start(options));
  const LocalLayout& layout = bench->cluster()->layout();
  LOCKSTEP_ASSIGN_OR_RETURN(
      const CertificateAuthority ca,
      CertificateAuthority::Load(RealFileSystem(), layout.CaDir(),
                                 SystemClock().Now().wall));
  const pid_t coordinator = bench->cluster()->Pid("coordinator");
  LOCKSTEP_ASSIGN_OR_RETURN(const Peer peer,
                            StartPeer(layout.TlsDir("coordinator")));
  BenchResult result;
  result.id = "Q3-cpu";
  result.ranks = kWorkers;
  result.peer = "bare gRPC stream server, synchronous, same TLS and frames";
  result.verified = true;
  for (int round = 0; round < kRounds; ++round) {
    {
      LOCKSTEP_ASSIGN_OR_RETURN(
          Fleet fleet, StartFleet(ca, bench->cluster()->grpc_address()));
      LOCKSTEP_ASSIGN_OR_RETURN(const double cpu, Cost(coordinator, fleet));
      result.ours_seconds.push_back({cpu});
      if (round == kRounds - 1) {
        LOCKSTEP_ASSIGN_OR_RETURN(const ProcessUse use, UseOf(coordinator));
        fmt::print("coordinator with {} workers: {:.1f} MiB resident\n",
                   kWorkers,
                   static_cast<double>(use.resident_bytes) / (1 << 20));
        LOCKSTEP_ASSIGN_OR_RETURN(const double noticed,
                                  Detect(bench->client(), &fleet));
        fmt::print(
            "{} silent workers: all UNKNOWN after {:.2f} s (lease {} "
            "s), no other\n",
            kSilent, noticed, kLease / seconds(1));
      }
    }
    LOCKSTEP_ASSIGN_OR_RETURN(const Fleet fleet, StartFleet(ca, peer.target));
    LOCKSTEP_ASSIGN_OR_RETURN(const double cpu,
                              Cost(peer.process.id.pid, fleet));
    result.peer_seconds.push_back({cpu});
  }
  (void)StopProcess(peer.process, seconds(5));
  PrintResults({result});
  if (json.empty()) return OkStatus();
  return AddToJson(json, {{"grpc", grpc::Version()}}, {result});
}

}  // namespace
}  // namespace lockstep

int main(int argc, char** argv) {
  if (argc == 3 && std::string_view(argv[1]) == "echo") {
    return lockstep::ServeEcho(argv[2]);
  }
  const lockstep::BenchFlags flags = lockstep::ParseBenchFlags(argc, argv);
  lockstep::SilenceRpcLog();
  return lockstep::BenchMain(lockstep::Run(flags.json));
}
