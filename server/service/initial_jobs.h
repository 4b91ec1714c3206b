// The jobs that exist when a watch begins, which are sent before changes.
//
// Each job is sent in its current state when its turn comes, so only its name
// waits. It may then be newer than the version at which the names were
// recorded. Changes up to the sent version are not sent again.
//
// Not thread-safe.
#ifndef LOCKSTEP_SERVER_SERVICE_INITIAL_JOBS_H_
#define LOCKSTEP_SERVER_SERVICE_INITIAL_JOBS_H_

#include <cstdint>
#include <list>
#include <map>
#include <optional>
#include <vector>

#include "common/model/job.h"

namespace lockstep::server {

class InitialJobs {
 public:
  // Records the jobs that exist at `version`.
  void Begin(std::vector<JobName> names, int64_t version);
  // Jobs, or the message after the last one, are still to be sent.
  bool pending() const { return version_.has_value(); }
  // Removes and returns the next job. Nullopt if all were sent.
  std::optional<JobName> Next();
  // Records that `job` is sent in its state at `version`.
  void OnSent(const JobName& job, int64_t version);
  // Returns the version at which the jobs were recorded. No job is pending
  // afterwards.
  int64_t End();

  // True if the change of `job` at `version` is part of what was sent. Call it
  // in version order.
  bool Covers(const JobName& job, int64_t version);

  // The number of waiting messages and their approximate memory.
  int64_t waiting() const {
    return pending() ? static_cast<int64_t>(names_.size()) + 1 : 0;
  }
  int64_t bytes() const { return bytes_; }

 private:
  std::list<JobName> names_;
  int64_t bytes_ = 0;
  std::optional<int64_t> version_;
  // Jobs that were sent in a later version, until the changes are newer.
  std::map<JobName, int64_t> sent_ahead_;
  int64_t newest_ahead_ = 0;
};

}  // namespace lockstep::server

#endif  // LOCKSTEP_SERVER_SERVICE_INITIAL_JOBS_H_
