// A coordinator for the tests of the worker daemon: real gRPC, no decisions.
// It keeps what the daemon says and sends what the test says.
#ifndef LOCKSTEP_WORKER_AGENT_FAKE_COORDINATOR_H_
#define LOCKSTEP_WORKER_AGENT_FAKE_COORDINATOR_H_

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/base/mutex.h"
#include "common/rpc/server.h"
#include "common/wire/evidence_wire.h"
#include "common/wire/gpu_check_wire.h"
#include "common/wire/probe_wire.h"
#include "common/wire/worker_wire.h"
#include "lockstep/v1/worker.grpc.pb.h"
#include "worker/agent/core/gang_key.h"

namespace lockstep::worker::agent {

class FakeCoordinator final : public v1::WorkerService::Service {
 public:
  explicit FakeCoordinator(uint64_t epoch = 1) : epoch_(epoch) {}
  // Of the store that it says it has: of those that connect from now on.
  void SetHistory(std::string history, std::vector<std::string> replaced = {},
                  std::string epoch_id = "") {
    MutexLock lock(&mu_);
    epoch_id_ = std::move(epoch_id);
    history_ = std::move(history);
    replaced_ = std::move(replaced);
  }
  ~FakeCoordinator() override { Stop(); }

  // On a free port, or again on the one of before.
  Status Start();
  void Stop();
  const std::string& address() const { return address_; }

  void Send(const Assignment& assignment);
  void Send(const Prefetch& wanted);
  void Send(const FileQuery& query);
  void Send(const ProbeQuery& query);
  void Send(const EvidenceQuery& query);
  void Send(const NeighbourList& list);
  void Send(const GpuCheckOrder& order);
  void SendDropWork(const std::vector<std::string>& uids);
  // Ends the stream; the daemon comes again.
  void Drop();
  // What the next Register is answered; OK: Welcome.
  void Refuse(grpc::Status status);

  // Waits until `condition` holds, at most 20 s. It runs under the lock.
  bool Eventually(const std::function<bool()>& condition);
  // Waits until everything that daemons which are gone have sent was heard: a
  // stream's last messages may come after its daemon's end.
  bool ReceivedAll();

  // What `read` gives, under the lock.
  template <typename F>
  auto Locked(const F& read) {
    MutexLock lock(&mu_);
    return read();
  }

  struct Log {
    std::string bytes;
    bool end = false;
  };
  // What came so far. Only within Eventually and Locked.
  int registers = 0;
  Registration registration;
  std::map<GangKey, GangStatus> statuses;
  PrefetchReport prefetched;
  std::vector<NodeHeartbeat> beats;
  std::map<RankRef, Log> logs;
  std::map<uint64_t, FileAnswer> file_answers;
  std::map<uint64_t, ProbeAnswer> probe_answers;
  std::map<uint64_t, std::vector<EvidenceAnswer>> evidence;
  std::map<uint64_t, GpuCheckAnswer> gpu_checks;
  std::vector<std::string> errors;

  grpc::Status Connect(
      grpc::ServerContext* context,
      grpc::ServerReaderWriter<v1::CoordinatorMessage, v1::WorkerMessage>*
          stream) override;

 private:
  using Stream =
      grpc::ServerReaderWriter<v1::CoordinatorMessage, v1::WorkerMessage>;
  grpc::Status Serve(grpc::ServerContext* context, Stream* stream);
  void Take(const v1::WorkerMessage& message, Stream* stream);
  void TakeLog(const LogPiece& piece, Stream* stream);

  const uint64_t epoch_;
  std::string address_ = "127.0.0.1:0";
  std::unique_ptr<RpcServer> server_;
  Mutex mu_;  // Over everything here but server_ and address_.
  std::string history_;
  std::string epoch_id_;
  std::vector<std::string> replaced_;
  CondVar changed_;
  int streams_ = 0;  // That are served at this moment.
  Stream* stream_ = nullptr;
  grpc::ServerContext* context_ = nullptr;
  grpc::Status refusal_;
  std::map<std::pair<GangKey, std::string>, std::string> values_;
  std::vector<RendezvousEntry> waiting_;
};

}  // namespace lockstep::worker::agent

#endif  // LOCKSTEP_WORKER_AGENT_FAKE_COORDINATOR_H_
