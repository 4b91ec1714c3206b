// Q3 and Q4: many streams on one coordinator.
#include <grpcpp/grpcpp.h>
#include <sys/prctl.h>

#include <atomic>
#include <memory>
#include <thread>

#include "common/base/file.h"
#include "common/rpc/status_conversion.h"
#include "common/wire/worker_wire.h"
#include "lockstep/v1/job.grpc.pb.h"
#include "lockstep/v1/worker.grpc.pb.h"
#include "tests/bench/cluster_rows.h"
#include "tests/bench/peers/probe.h"

namespace lockstep {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr int kWorkers = 200;
constexpr int kSilent = 20;
constexpr auto kBeat = milliseconds(500);
constexpr auto kBeating = seconds(30);
constexpr auto kLease = seconds(3);

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

// One daemon: a thread that registers and beats until told to stop, or to fall
// silent with its stream open.
class SimulatedWorker {
 public:
  SimulatedWorker(std::string name, std::shared_ptr<grpc::Channel> channel,
                  milliseconds delay)
      : name_(std::move(name)),
        channel_(std::move(channel)),
        thread_([this, delay] {
          std::this_thread::sleep_for(delay);
          Run();
        }) {}
  ~SimulatedWorker() {
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
        NodeHeartbeat beat;
        beat.sequence = sequence++;
        beat.readings.cpu_utilization = 0.25;
        beat.readings.memory_available_bytes = 1 << 30;
        *message.mutable_heartbeat() = ToProto(beat);
        if (!stream->Write(message)) return;
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

using Fleet = std::vector<std::unique_ptr<SimulatedWorker>>;

StatusOr<Fleet> StartFleet(BenchCluster* bench,
                           const pki::CertificateAuthority& ca,
                           const std::string& target) {
  Fleet fleet;
  for (int i = 0; i < kWorkers; ++i) {
    const std::string name = "sim" + std::to_string(i);
    LOCKSTEP_ASSIGN_OR_RETURN(
        auto channel,
        bench->Connect(ca, pki::WorkerIdentity(ca.cluster(), name), target));
    fleet.push_back(std::make_unique<SimulatedWorker>(
        name, std::move(channel), milliseconds(i * 1000 / kWorkers)));
  }
  return fleet;
}

// CPU seconds of `pid` while the fleet beats.
StatusOr<double> CpuOf(pid_t pid, const Fleet& fleet) {
  const auto beats = [&] {
    int64_t sum = 0;
    for (const auto& worker : fleet) sum += worker->beats();
    return sum;
  };
  std::this_thread::sleep_for(seconds(3));
  LOCKSTEP_ASSIGN_OR_RETURN(const ProcessUse before, UseOf(pid));
  const int64_t first = beats();
  std::this_thread::sleep_for(kBeating);
  LOCKSTEP_ASSIGN_OR_RETURN(const ProcessUse after, UseOf(pid));
  const int64_t expected = kWorkers * (kBeating / kBeat);
  if (beats() - first < expected * 9 / 10) {
    return Internal("{} of {} beats were answered", beats() - first, expected);
  }
  return after.cpu_seconds - before.cpu_seconds;
}

// The bare server; `target` becomes its address.
StatusOr<Process> StartEcho(RowRun* run, std::string* target) {
  const int slot = run->board.Take(1);
  SpawnOptions spawn;
  spawn.program = BenchProgram("cluster_rows");
  spawn.argv = Words{spawn.program, "echo",
                     run->ours->cluster()->layout().TlsDir("coordinator")} +
               run->board.Arguments(slot);
  spawn.env = CurrentEnvironment();
  spawn.stderr_fd = 2;
  LOCKSTEP_ASSIGN_OR_RETURN(Process process, Spawn(spawn));
  LOCKSTEP_ASSIGN_OR_RETURN(const int64_t port, run->board.WaitAll(slot, 1));
  *target = fmt::format("127.0.0.1:{}", port);
  return process;
}

// How long until exactly the silent ones are UNKNOWN.
Status DetectSilence(cli::Client* client, Fleet* fleet) {
  for (int i = 0; i < kSilent; ++i) (*fleet)[i]->FallSilent();
  const int64_t start = MonotonicNanos();
  LOCKSTEP_RETURN_IF_ERROR(AwaitTrue(
      "silent workers are not noticed",
      [&]() -> StatusOr<bool> {
        LOCKSTEP_ASSIGN_OR_RETURN(const auto nodes, client->ListNodes());
        int silent = 0;
        for (const v1::Node& node : nodes) {
          if (node.state() == v1::NODE_STATE_READY) continue;
          if (node.name().rfind("sim", 0) != 0 ||
              atoi(node.name().c_str() + 3) >= kSilent) {
            return Internal("{} is not READY", node.name());
          }
          ++silent;
        }
        return silent == kSilent;
      },
      milliseconds(20)));
  fmt::print(
      "{} silent workers: all UNKNOWN after {:.2f} s (lease {} s), no other\n",
      kSilent, SecondsSince(start), kLease / seconds(1));
  return OkStatus();
}

}  // namespace

int ServeEcho(const std::string& tls_dir, const char* board, int slot) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  const auto pem = [&](const char* name) {
    return RealFileSystem()->Read(tls_dir + "/" + name).value_or("");
  };
  grpc::SslServerCredentialsOptions options(
      GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY);
  options.pem_root_certs = pem("ca.crt");
  options.pem_key_cert_pairs.push_back({pem("tls.key"), pem("tls.crt")});
  Echo echo;
  grpc::ServerBuilder builder;
  int port = 0;
  builder.AddListeningPort("127.0.0.1:0", grpc::SslServerCredentials(options),
                           &port);
  builder.RegisterService(&echo);
  const auto server = builder.BuildAndStart();
  if (!server || !probe_post(board, slot, port)) return 1;
  server->Wait();
  return 0;
}

Status RunQ3(RowRun* run) {
  LOCKSTEP_RETURN_IF_ERROR(run->Start(1));
  BenchCluster* const bench = run->ours.get();
  LOCKSTEP_ASSIGN_OR_RETURN(const pki::CertificateAuthority ca,
                            bench->Authority());
  const pid_t coordinator = bench->cluster()->Pid("coordinator");
  std::string target;
  LOCKSTEP_ASSIGN_OR_RETURN(const Process echo, StartEcho(run, &target));
  fmt::print("VERSION grpc {}\n", grpc::Version());
  const auto cost = [&](pid_t pid, const std::string& target,
                        bool last) -> StatusOr<double> {
    LOCKSTEP_ASSIGN_OR_RETURN(Fleet fleet, StartFleet(bench, ca, target));
    LOCKSTEP_ASSIGN_OR_RETURN(const double cpu, CpuOf(pid, fleet));
    if (!last) return cpu;
    LOCKSTEP_ASSIGN_OR_RETURN(const ProcessUse use, UseOf(pid));
    fmt::print("coordinator with {} workers: {:.1f} MiB resident\n", kWorkers,
               use.resident_bytes / (1 << 20));
    LOCKSTEP_RETURN_IF_ERROR(DetectSilence(bench->client(), &fleet));
    return cpu;
  };
  int left = run->rounds > 0 ? run->rounds : 3;
  const Status status = run->Compare(
      left, 1,
      {[&] { return cost(coordinator, "", --left == 0); },
       [&] { return cost(echo.id.pid, target, false); }},
      {{"Q3-cpu", "bare gRPC stream server, synchronous, same TLS and frames",
        0, 1, kWorkers}});
  (void)StopProcess(echo, seconds(5));
  return status;
}

namespace {

constexpr int kWatches = 5000;
constexpr int kFollowers = 1000;
constexpr int kOfConnection = 500;
// The streams' identities: one has no more than CallerLimits::open_streams.
constexpr int kViewers = 4;
constexpr int kSubmissions = 400;
constexpr double kMostBytes = 20 << 10;
constexpr auto kSettle = seconds(60);
// Of rounds in which memory is not measured.
constexpr auto kShortSettle = seconds(5);
constexpr char kWatched[] = "watched";

// One of Message's streams. It holds no thread here either.
template <typename Message>
struct IdleStream {
  std::unique_ptr<grpc::ClientContext> context =
      std::make_unique<grpc::ClientContext>();
  std::unique_ptr<grpc::ClientReader<Message>> reader;

  IdleStream() = default;
  IdleStream(IdleStream&&) = default;
  ~IdleStream() {
    if (reader == nullptr) return;
    context->TryCancel();
    Message rest;
    while (reader->Read(&rest)) {
    }
    (void)reader->Finish();
  }
  // Until a message is the last one of what there is.
  Status AwaitIdle(bool (*last)(const Message&)) {
    Message message;
    do {
      if (reader->Read(&message)) continue;
      const Status status = FromGrpc(reader->Finish());
      reader.reset();
      return status.ok() ? Internal("a stream ended early") : status;
    } while (!last(message));
    return OkStatus();
  }
};

struct IdleStreams {
  std::vector<std::unique_ptr<v1::JobService::Stub>> stubs;
  std::vector<IdleStream<v1::WatchJobsResponse>> watches;
  std::vector<IdleStream<v1::StreamLogsResponse>> followers;

  Status Open(BenchCluster* bench, const pki::CertificateAuthority& ca) {
    for (int i = 0; i < kWatches + kFollowers; ++i) {
      if (i % kOfConnection == 0) {
        // With a key of its own, or gRPC would share one connection. Logs are
        // for a job's owner and admins.
        const auto viewer = std::to_string(stubs.size() % kViewers);
        LOCKSTEP_ASSIGN_OR_RETURN(
            const auto channel,
            bench->Connect(ca, UserIdentity(ca.cluster(), pki::UserRole::kAdmin,
                                            "watcher" + viewer)));
        stubs.push_back(v1::JobService::NewStub(channel));
      }
      if (i < kWatches) {
        v1::WatchJobsRequest request;
        request.set_name(kWatched);
        auto& watch = watches.emplace_back();
        watch.reader = stubs.back()->WatchJobs(watch.context.get(), request);
        continue;
      }
      v1::StreamLogsRequest request;
      request.set_name(kWatched);
      request.set_follow(true);
      // Something to see that it has begun by.
      request.set_include_events(true);
      auto& follower = followers.emplace_back();
      follower.reader =
          stubs.back()->StreamLogs(follower.context.get(), request);
    }
    for (auto& watch : watches) {
      LOCKSTEP_RETURN_IF_ERROR(watch.AwaitIdle([](const auto& event) {
        return event.event_case() == v1::WatchJobsResponse::kSynced;
      }));
    }
    for (auto& follower : followers) {
      LOCKSTEP_RETURN_IF_ERROR(
          follower.AwaitIdle([](const auto&) { return true; }));
    }
    return OkStatus();
  }
};

// The 99th percentile, in seconds. Nothing runs: one job has all CPUs.
StatusOr<double> SubmitP99(BenchCluster* bench) {
  static int jobs = 0;
  std::vector<double> took;
  for (int i = 0; i < kSubmissions; ++i) {
    const std::string name = "job" + std::to_string(jobs++);
    const auto spec = BenchCluster::Program(name, 1, 1, {"/bin/true"});
    const int64_t start = MonotonicNanos();
    LOCKSTEP_RETURN_IF_ERROR(bench->Submit(spec));
    took.push_back(SecondsSince(start));
    // A queue that grows would be in the later figures.
    LOCKSTEP_RETURN_IF_ERROR(bench->client()->CancelJob(name).status());
  }
  return Percentile(std::move(took), 99);
}

}  // namespace

Status RunQ4(RowRun* run) {
  LOCKSTEP_RETURN_IF_ERROR(run->Start(1));
  BenchCluster* const bench = run->ours.get();
  LOCKSTEP_ASSIGN_OR_RETURN(const pki::CertificateAuthority ca,
                            bench->Authority());
  LOCKSTEP_RETURN_IF_ERROR(bench->Submit(
      BenchCluster::Program(kWatched, 1, 2, {"/bin/sleep", "36000"})));
  fmt::print("VERSION grpc {}\n", grpc::Version());
  const auto resident = [&]() -> StatusOr<double> {
    LOCKSTEP_ASSIGN_OR_RETURN(const ProcessUse use,
                              UseOf(bench->cluster()->Pid("coordinator")));
    return use.resident_bytes;
  };
  const int streams = kWatches + kFollowers;
  run->sides.assign(4, {});
  for (int round = 0; round < (run->rounds > 0 ? run->rounds : 3); ++round) {
    LOCKSTEP_ASSIGN_OR_RETURN(const double without, SubmitP99(bench));
    LOCKSTEP_ASSIGN_OR_RETURN(const double before, resident());
    IdleStreams open;
    LOCKSTEP_RETURN_IF_ERROR(open.Open(bench, ca));
    std::this_thread::sleep_for(round == 0 ? kSettle : kShortSettle);
    LOCKSTEP_ASSIGN_OR_RETURN(const double after, resident());
    LOCKSTEP_ASSIGN_OR_RETURN(const double with, SubmitP99(bench));
    run->sides[0].push_back({with});
    run->sides[1].push_back({without});
    // Later rounds find memory that the first one's streams left.
    if (round > 0) continue;
    run->sides[2].push_back({(after - before) / streams});
    run->sides[3].push_back({kMostBytes});
  }
  run->Report(
      {"Q4-memory", "20 KiB a stream", 2, 3, streams, 0, nullptr, "bytes"});
  run->Report(
      {"Q4-submit-p99", "the same coordinator without streams", 0, 1, streams});
  return OkStatus();
}

}  // namespace lockstep
