// The jobs that exist when a watch begins, which are sent before the changes.
//
// Each is sent as it is when its turn comes, so only its name waits. A job may
// be newer by then than the version at which the names were noted. The changes
// up to the version that was sent are not sent again.
//
// Not safe from several threads.
#ifndef LOCKSTEP_SERVER_SERVICE_INITIAL_JOBS_H_
#define LOCKSTEP_SERVER_SERVICE_INITIAL_JOBS_H_

#include <cstdint>
#include <list>
#include <map>
#include <optional>
#include <vector>

#include "common/model/job.h"

namespace lockstep {

class InitialJobs {
 public:
  // Notes the jobs that exist at `version`.
  void Begin(std::vector<JobName> names, int64_t version);
  // Whether jobs, or the message that these were all, are still to be sent.
  bool pending() const { return version_.has_value(); }
  // Removes and returns the next job; nullopt if all were sent.
  std::optional<JobName> Next();
  // Records that `job` is sent as it is at `version`.
  void OnSent(const JobName& job, int64_t version);
  // Returns the version at which the jobs were noted. No job is pending from
  // here on.
  int64_t End();

  // Whether the change of `job` at `version` is part of what was sent. Changes
  // are asked for in the order of their versions.
  bool Covers(const JobName& job, int64_t version);

  // The number of messages that wait, and about what they take in memory.
  int64_t waiting() const {
    return pending() ? static_cast<int64_t>(names_.size()) + 1 : 0;
  }
  int64_t bytes() const { return bytes_; }

 private:
  std::list<JobName> names_;
  int64_t bytes_ = 0;
  std::optional<int64_t> version_;
  // The jobs that were sent as they were after that version, until the changes
  // are newer.
  std::map<JobName, int64_t> sent_ahead_;
  int64_t newest_ahead_ = 0;
};

}  // namespace lockstep

#endif  // LOCKSTEP_SERVER_SERVICE_INITIAL_JOBS_H_
