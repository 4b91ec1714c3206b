// The coordinator's hard state: jobs, nodes, answered requests.
//
// One transaction per decision, durable when Commit returns. Heartbeats,
// progress and watchers are soft state and never come here.
// Thread-compatible: the coordinator serialises its calls.
#ifndef LOCKSTEP_SERVER_STORE_STORE_H_
#define LOCKSTEP_SERVER_STORE_STORE_H_

#include <compare>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/base/status.h"
#include "common/model/store_point.h"
#include "server/core/job.h"
#include "server/core/node_record.h"

namespace lockstep::server {

// A command that changed something, and its answer: a repeat gets the same.
struct AnsweredRequest {
  // The caller's identity.
  std::string client;
  std::string id;
  std::string method;
  // Of the request without its id.
  std::string content_hash;
  // The response message's bytes.
  std::string response;
  WallTime time{};
};

struct RequestName {
  std::string client;
  std::string id;

  auto operator<=>(const RequestName&) const = default;
};

struct StoreBatch {
  // The commit's number: one more than the last.
  int64_t version = 0;
  // Jobs as they are now. Of each only what changed since its last commit is
  // written; the store keeps it to see that.
  std::vector<std::shared_ptr<const Job>> jobs;
  // Borrowed until Commit returns.
  std::vector<const NodeRecord*> nodes;
  // Rows that go. A job's name stays taken for ever.
  std::vector<JobName> delete_jobs;
  std::vector<NodeName> forget_nodes;
  std::optional<AnsweredRequest> request;
  // Requests answered before this time are forgotten.
  std::optional<WallTime> forget_requests_before;
  // And these.
  std::vector<RequestName> forget_requests;
};

// How a run of the coordinator began.
struct EpochStart {
  // Of the last commit before it.
  int64_t version = 0;
  // See StorePoint. Empty: it was written by a version that drew none.
  std::string id;
};

struct StoreSnapshot {
  // Raised by Load: names this run of the coordinator.
  uint64_t epoch = 0;
  int64_t version = 0;
  // See StorePoint.
  std::string history;
  // Histories that an operator replaced by this one, each with the point up to
  // which this store has it.
  std::vector<StorePoint> replaced_histories;
  // Of the epochs of this history; the newest 1,000.
  std::map<uint64_t, EpochStart> epoch_starts;
  // No new generation of any job may be this number or a lower one: a replaced
  // history may have used it.
  Generation generation_floor = 0;
  std::vector<std::shared_ptr<const Job>> jobs;
  std::vector<JobName> deleted_jobs;
  std::vector<NodeRecord> nodes;
  std::vector<AnsweredRequest> requests;
};

class Store {
 public:
  virtual ~Store() = default;
  // Everything, once, at the start; raises and stores the epoch.
  virtual StatusOr<StoreSnapshot> Load() = 0;
  // All or nothing. ResourceExhausted: the disk is full. Aborted: another
  // coordinator has opened the store since; this one must end. After an error
  // nothing of the batch is there. Where the batch is there and cannot be
  // marked as promised, the process ends.
  virtual Status Commit(const StoreBatch& batch) = 0;
};

}  // namespace lockstep::server

#endif  // LOCKSTEP_SERVER_STORE_STORE_H_
