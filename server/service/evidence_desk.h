// Collects evidence about ranks from the daemons of their nodes, over the
// daemons' streams.
//
// Thread-safe. Answers wake the caller, which holds no thread until then.
#ifndef LOCKSTEP_SERVER_SERVICE_EVIDENCE_DESK_H_
#define LOCKSTEP_SERVER_SERVICE_EVIDENCE_DESK_H_

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "common/model/evidence.h"
#include "server/stream/admission_limiter.h"
#include "server/stream/stream_reactor.h"

namespace lockstep::server {

struct EvidenceDeskOptions {
  // For a daemon, and what the coordinator waits longer for its answers.
  Duration within = std::chrono::seconds(5);
  Duration reserve = std::chrono::seconds(2);
  // Concurrent collections.
  AdmissionLimits collections{8, 2};
};

class EvidenceDesk {
 public:
  explicit EvidenceDesk(EvidenceDeskOptions options = {});

  // A daemon's stream. `send` queues, and may be called for a moment after
  // Disconnect. A later stream of the node replaces it.
  using Connection = uint64_t;
  Connection Connect(const NodeName& node,
                     std::function<void(const EvidenceQuery&)> send);
  // Pending queries on it fail.
  void Disconnect(Connection connection);
  // Takes an answer from the stream. Unexpected answers are dropped.
  void OnAnswer(Connection connection, EvidenceAnswer answer);

  // What the nodes answered.
  struct Collected {
    // In the order of arrival.
    std::vector<RankEvidence> ranks;
    // Nodes without an answer, and why.
    std::vector<std::string> notes;
  };

  // One query to several nodes. Must end before its call and before the desk.
  // Its calls are serial.
  class Collection {
   public:
    // Sends to each node the query for its ranks, in which id and time are set
    // here. `peer`, which outlives it, is woken when Done() becomes true.
    Collection(EvidenceDesk* desk, const std::map<NodeName, EvidenceQuery>& to,
               StreamPeer* peer);
    ~Collection();
    Collection(const Collection&) = delete;
    Collection& operator=(const Collection&) = delete;

    // All nodes have answered, or deadline() is over.
    bool Done() const;
    MonoTime deadline() const { return deadline_; }
    // REQUIRES: Done(). Call it once.
    Collected Take();

   private:
    friend class EvidenceDesk;
    struct Pending {
      NodeName node;
      Connection connection = 0;
    };
    EvidenceDesk* const desk_;
    StreamPeer* const peer_;
    const MonoTime deadline_;
    // By the query's id.
    std::map<uint64_t, Pending> pending_ ABSL_GUARDED_BY(desk_->mu_);
    Collected collected_ ABSL_GUARDED_BY(desk_->mu_);
  };

  const EvidenceDeskOptions& options() const { return options_; }
  AdmissionLimiter* limiter() { return &limiter_; }

 private:
  struct Peer {
    NodeName node;
    std::function<void(const EvidenceQuery&)> send;
  };
  // The node's answer to this query is complete, or will not come.
  void End(Collection* collection, uint64_t id)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const EvidenceDeskOptions options_;
  AdmissionLimiter limiter_;
  mutable Mutex mu_;
  uint64_t next_ ABSL_GUARDED_BY(mu_) = 1;
  std::map<Connection, Peer> peers_ ABSL_GUARDED_BY(mu_);
  std::map<NodeName, Connection> nodes_ ABSL_GUARDED_BY(mu_);
  // By the ids of their queries.
  std::map<uint64_t, Collection*> collections_ ABSL_GUARDED_BY(mu_);
};

}  // namespace lockstep::server

#endif  // LOCKSTEP_SERVER_SERVICE_EVIDENCE_DESK_H_
