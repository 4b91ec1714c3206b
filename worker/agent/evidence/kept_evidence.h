// Evidence that was captured before ranks were stopped, on disk:
//
//   DIR/evidence/JOB.gN    of generation N, all ranks of this node
//
// A file outlives its gang and the daemon. It goes with its job, and the oldest
// files go when they are older or together larger than the limits.
//
// Blocks. Safe from any thread, but for one caller of Write, Drop and Sweep at
// a time.
#ifndef LOCKSTEP_WORKER_AGENT_EVIDENCE_KEPT_EVIDENCE_H_
#define LOCKSTEP_WORKER_AGENT_EVIDENCE_KEPT_EVIDENCE_H_

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "common/base/clock.h"
#include "common/base/file.h"
#include "common/base/status.h"
#include "common/model/evidence.h"
#include "worker/agent/core/gang_key.h"

namespace lockstep::worker::agent {

// A generation with more than `largest` bytes loses the processes, sockets and
// log lines of its last ranks, and a note of each says so.
struct KeptLimits {
  uint64_t largest = 12 << 20;
  uint64_t bytes = 64 << 20;
  Duration age = std::chrono::hours(30 * 24);
};

class KeptEvidence {
 public:
  // `files` is borrowed; `dir` is the daemon's state directory.
  KeptEvidence(FileSystem* files, const std::string& dir,
               const KeptLimits& limits = {});

  // When it returns OK, the evidence is durable. An earlier one of the same
  // generation is replaced. Then the limits are enforced.
  Status Write(const GangKey& key, const std::string& job_uid,
               const std::vector<RankEvidence>& ranks, WallTime now);
  // Removes what is kept of the jobs with these uids.
  void Drop(const std::set<std::string>& job_uids) const;
  // Enforces the limits, as Write does.
  void Sweep(WallTime now) const { RemoveOld("", now); }
  // NotFound: nothing is kept of this generation of the job with this uid.
  // DataLoss describes what is wrong with the file.
  StatusOr<std::vector<RankEvidence>> Read(const GangKey& key,
                                           const std::string& job_uid) const;

 private:
  std::string PathOf(const GangKey& key) const;
  // The uid of the job that the file is of.
  StatusOr<std::string> JobOf(const std::string& path) const;
  void RemoveOld(const std::string& keep, WallTime now) const;

  FileSystem* const files_;
  const std::string directory_;
  const KeptLimits limits_;
};

}  // namespace lockstep::worker::agent

#endif  // LOCKSTEP_WORKER_AGENT_EVIDENCE_KEPT_EVIDENCE_H_
