// Q4: 5,000 watches and 1,000 followers of a log, 500 a connection, all idle:
// what each adds to the coordinator's resident memory after a minute, beside
// the 20 KiB that it may; and the 99th percentile of submissions with them
// open, beside the same without them, which it may double at most.
#include <grpcpp/grpcpp.h>

#include <memory>
#include <thread>

#include "common/base/file.h"
#include "common/pki/ca.h"
#include "common/rpc/channel.h"
#include "common/rpc/status_conversion.h"
#include "lockstep/v1/job.grpc.pb.h"
#include "tests/bench/bench_cluster.h"
#include "tests/bench/report.h"

namespace lockstep {
namespace {

using std::chrono::seconds;

constexpr int kWatches = 5000;
constexpr int kFollowers = 1000;
constexpr int kOfConnection = 500;
// The streams' identities: one has no more than CallerLimits::open_streams.
constexpr int kViewers = 4;
constexpr int kRounds = 3;
constexpr int kSubmissions = 400;
constexpr double kMaxBytes = 20 << 10;
constexpr double kMaxSlowdown = 2;
constexpr auto kSettle = seconds(60);
// Of rounds in which memory is not measured.
constexpr auto kShortSettle = seconds(5);
constexpr char kWatched[] = "watched";
constexpr double kCpus = 2;

template <typename Message>
struct Stream {
  std::unique_ptr<grpc::ClientContext> context =
      std::make_unique<grpc::ClientContext>();
  std::unique_ptr<grpc::ClientReader<Message>> reader;
};

// A connection of its own, with the streams on it. They hold no thread here
// either.
class Connection {
 public:
  explicit Connection(const std::shared_ptr<grpc::Channel>& channel)
      : stub_(v1::JobService::NewStub(channel)) {}
  ~Connection() {
    for (auto& watch : watches_) End(&watch);
    for (auto& follower : followers_) End(&follower);
  }

  void Watch() {
    v1::WatchJobsRequest request;
    request.set_name(kWatched);
    auto& watch = watches_.emplace_back();
    watch.reader = stub_->WatchJobs(watch.context.get(), request);
  }
  void Follow() {
    v1::StreamLogsRequest request;
    request.set_name(kWatched);
    request.set_follow(true);
    // Something to see that it has begun by.
    request.set_include_events(true);
    auto& follower = followers_.emplace_back();
    follower.reader = stub_->StreamLogs(follower.context.get(), request);
  }
  // Until each has been sent what there is.
  Status AwaitIdle() {
    for (auto& watch : watches_) {
      v1::WatchJobsResponse event;
      do {
        if (!watch.reader->Read(&event)) return EarlyEnd(&watch);
      } while (event.event_case() != v1::WatchJobsResponse::kSynced);
    }
    for (auto& follower : followers_) {
      v1::StreamLogsResponse lines;
      if (!follower.reader->Read(&lines)) return EarlyEnd(&follower);
    }
    return OkStatus();
  }

 private:
  template <typename Message>
  static Status EarlyEnd(Stream<Message>* stream) {
    const Status status = FromGrpc(stream->reader->Finish());
    stream->reader.reset();
    return status.ok() ? Internal("a stream ended early") : status;
  }
  template <typename Message>
  static void End(Stream<Message>* stream) {
    if (stream->reader == nullptr) return;
    stream->context->TryCancel();
    Message rest;
    while (stream->reader->Read(&rest)) {
    }
    (void)stream->reader->Finish();
  }

  const std::unique_ptr<v1::JobService::Stub> stub_;
  std::vector<Stream<v1::WatchJobsResponse>> watches_;
  std::vector<Stream<v1::StreamLogsResponse>> followers_;
};

class StreamBench {
 public:
  StreamBench(BenchCluster* bench, CertificateAuthority ca)
      : bench_(bench), ca_(std::move(ca)) {}

  Status Open() {
    for (int i = 0; i < kWatches + kFollowers; ++i) {
      if (i % kOfConnection == 0) LOCKSTEP_RETURN_IF_ERROR(Connect());
      if (i < kWatches) {
        connections_.back()->Watch();
      } else {
        connections_.back()->Follow();
      }
    }
    for (const auto& connection : connections_) {
      LOCKSTEP_RETURN_IF_ERROR(connection->AwaitIdle());
    }
    return OkStatus();
  }
  void Close() { connections_.clear(); }

  // The 99th percentile, in seconds. Nothing runs: one job has all CPUs.
  StatusOr<double> Submit() {
    std::vector<double> took;
    for (int i = 0; i < kSubmissions; ++i) {
      const std::string name = "job" + std::to_string(next_++);
      const auto spec = BenchCluster::Program(name, 1, 1, {"/bin/true"});
      const int64_t start = MonotonicNanos();
      LOCKSTEP_RETURN_IF_ERROR(bench_->client()->SubmitJob(spec).status());
      took.push_back(static_cast<double>(MonotonicNanos() - start) / 1e9);
      // A queue that grows would be in the later figures.
      LOCKSTEP_RETURN_IF_ERROR(bench_->client()->CancelJob(name).status());
    }
    return Percentile(took, 0.99);
  }
  StatusOr<double> ResidentBytes() const {
    LOCKSTEP_ASSIGN_OR_RETURN(const ProcessUse use,
                              UseOf(bench_->cluster()->Pid("coordinator")));
    return static_cast<double>(use.resident_bytes);
  }

 private:
  // With a key of its own, or gRPC would share one connection.
  Status Connect() {
    const size_t viewer = connections_.size() % kViewers;
    LeafRequest request;
    // Logs are for a job's owner and admins.
    request.identity = UserIdentity(ca_.cluster(), UserRole::kAdmin,
                                    "watcher" + std::to_string(viewer));
    LOCKSTEP_ASSIGN_OR_RETURN(const KeyAndCertificate leaf,
                              ca_.Issue(request, SystemClock().Now().wall));
    ChannelOptions options;
    options.target = bench_->cluster()->grpc_address();
    options.credentials.emplace();
    options.credentials->ca = ca_.certificate();
    options.credentials->certificate = leaf.certificate;
    options.credentials->key = leaf.key;
    options.credentials->identity = request.identity;
    LOCKSTEP_ASSIGN_OR_RETURN(auto channel, MakeChannel(options));
    connections_.push_back(std::make_unique<Connection>(channel));
    return OkStatus();
  }

  BenchCluster* const bench_;
  const CertificateAuthority ca_;
  std::vector<std::unique_ptr<Connection>> connections_;
  int next_ = 0;
};

StatusOr<std::vector<BenchResult>> Measure(StreamBench* bench) {
  BenchResult memory;
  memory.id = "Q4-memory";
  memory.ranks = kWatches + kFollowers;
  memory.peer = "20 KiB a stream";
  memory.unit = BenchResult::Unit::kBytes;
  memory.must = 1;
  memory.verified = true;
  BenchResult submit;
  submit.id = "Q4-submit-p99";
  submit.ranks = memory.ranks;
  submit.peer = "the same coordinator without streams";
  submit.must = 1 / kMaxSlowdown;
  submit.verified = true;
  for (int round = 0; round < kRounds; ++round) {
    LOCKSTEP_ASSIGN_OR_RETURN(const double idle, bench->Submit());
    LOCKSTEP_ASSIGN_OR_RETURN(const double before, bench->ResidentBytes());
    LOCKSTEP_RETURN_IF_ERROR(bench->Open());
    std::this_thread::sleep_for(round == 0 ? kSettle : kShortSettle);
    LOCKSTEP_ASSIGN_OR_RETURN(const double after, bench->ResidentBytes());
    LOCKSTEP_ASSIGN_OR_RETURN(const double loaded, bench->Submit());
    bench->Close();
    // Later rounds find memory that the first one's streams left.
    if (round == 0) {
      memory.ours_seconds.push_back({(after - before) / memory.ranks});
      memory.peer_seconds.push_back({kMaxBytes});
    }
    submit.ours_seconds.push_back({loaded});
    submit.peer_seconds.push_back({idle});
  }
  return std::vector<BenchResult>{memory, submit};
}

Status Run(const std::string& json) {
  LocalClusterOptions options;
  options.workers = 1;
  options.cpus = kCpus;
  options.gpus = 0;
  LOCKSTEP_ASSIGN_OR_RETURN(const auto cluster, BenchCluster::Start(options));
  LOCKSTEP_ASSIGN_OR_RETURN(
      CertificateAuthority ca,
      CertificateAuthority::Load(RealFileSystem(),
                                 cluster->cluster()->layout().CaDir(),
                                 SystemClock().Now().wall));
  LOCKSTEP_RETURN_IF_ERROR(cluster->client()
                               ->SubmitJob(BenchCluster::Program(
                                   kWatched, 1, kCpus, {"/bin/sleep", "36000"}))
                               .status());
  StreamBench bench(cluster.get(), std::move(ca));
  LOCKSTEP_ASSIGN_OR_RETURN(const std::vector<BenchResult> results,
                            Measure(&bench));
  PrintResults(results);
  if (json.empty()) return OkStatus();
  return AddToJson(json, {{"grpc", grpc::Version()}}, results);
}

}  // namespace
}  // namespace lockstep

int main(int argc, char** argv) {
  const lockstep::BenchFlags flags = lockstep::ParseBenchFlags(argc, argv);
  lockstep::SilenceRpcLog();
  return lockstep::BenchMain(lockstep::Run(flags.json));
}
