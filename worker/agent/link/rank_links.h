// The daemon's links to its ranks: admits ranks, sends them messages and
// receives their reports. Native ranks must come, ranks of programs may.
//
// Belongs to the event loop's thread.
#ifndef LOCKSTEP_WORKER_AGENT_LINK_RANK_LINKS_H_
#define LOCKSTEP_WORKER_AGENT_LINK_RANK_LINKS_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "common/base/status.h"
#include "lockstep/v1/worker.pb.h"
#include "worker/agent/core/action.h"
#include "worker/agent/core/gang_key.h"
#include "worker/agent/host/daemon_setup.h"
#include "worker/agent/link/rendezvous_relay.h"
#include "worker/agent/loop/core_runner.h"
#include "worker/agent/loop/event_loop.h"
#include "worker/rank_link/server.h"

namespace lockstep::worker::agent {

class RankLinks final : public rank_link::RankLinkHandler {
 public:
  // Pointers are borrowed. `send` sends to the coordinator.
  RankLinks(const DaemonSetup* setup, EventLoop* loop, CoreRunner* core,
            std::function<void(const v1::WorkerMessage&)> send);
  ~RankLinks() override;

  // Creates the socket in the runtime directory, with a second name in a
  // directory of its own: containers mount that, and find the socket of the
  // next daemon in it.
  Status Listen();
  // Starts to accept ranks.
  Status Start();
  const std::string& path() const { return server_->path(); }
  // For ranks of programs. The directory has nothing else in it; empty: the
  // file system gives no second name, and containers have no link.
  const std::string& directory() const { return directory_; }
  std::string ProgramPath() const;
  RendezvousRelay* rendezvous() { return &rendezvous_; }

  // Nonces by rank, with which the ranks of the gang authenticate: created
  // before the gang's ranks start, or loaded from an earlier daemon.
  void MakeNonces(const GangKey& key, const std::vector<RankStatus>& ranks);
  // False: none of the gang's ranks has started here, or it was forgotten.
  bool HasNonces(const GangKey& key) const {
    const auto it = nonces_.find(key);
    return it != nonces_.end() && !it->second.empty();
  }
  void SetNonces(const GangKey& key, std::map<int32_t, std::string> nonces);
  const std::map<int32_t, std::string>& NoncesOf(const GangKey& key) {
    return nonces_[key];
  }
  std::string NonceOf(const RankRef& ref) {
    return nonces_[ref.gang][ref.rank];
  }
  // The content of a program's link file.
  std::string LinkFileOf(const RankRef& ref);

  // Admits the rank from now on; `page` is the path of its page. A rank that is
  // connected gets a new Welcome if the recovery has risen.
  void Expect(const RankRef& ref, const std::string& page);
  // Action::Kind::kGo, kAbort and kDirective.
  void Tell(const Action& action);
  // The process of a program that had joined as `ref` has ended or closed, or
  // none has joined.
  bool HasNoProcess(const RankRef& ref) const;
  // Disconnects the rank, and drops what its next process would be sent.
  void Forget(const RankRef& ref);
  void ForgetGang(const GangKey& key);

  // RankLinkHandler.
  void OnPut(const rank_link::RankKey& key, const std::string& name,
             const std::string& value) override;
  void OnGet(const rank_link::RankKey& key, const std::string& name) override;
  void OnJoined(const rank_link::RankKey& key,
                const v1::RankJoined& joined) override;
  void OnReport(const rank_link::RankKey& key,
                const v1::RankReport& report) override;

 private:
  const DaemonSetup* const setup_;
  EventLoop* const loop_;
  CoreRunner* const core_;
  RendezvousRelay rendezvous_;
  std::unique_ptr<rank_link::RankLinkServer> server_;
  std::string directory_;
  std::map<GangKey, std::map<int32_t, std::string>> nonces_;
};

}  // namespace lockstep::worker::agent

#endif  // LOCKSTEP_WORKER_AGENT_LINK_RANK_LINKS_H_
