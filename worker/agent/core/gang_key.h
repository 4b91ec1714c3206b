// The names of a gang and of a rank of this node. Pure.
#ifndef LOCKSTEP_WORKER_AGENT_CORE_GANG_KEY_H_
#define LOCKSTEP_WORKER_AGENT_CORE_GANG_KEY_H_

#include <compare>
#include <cstdint>
#include <string>

#include "common/model/job.h"

namespace lockstep::worker::agent {

struct GangKey {
  JobName job;
  Generation generation = 0;

  auto operator<=>(const GangKey&) const = default;
};

// "job mnist g3".
std::string Describe(const GangKey& key);

struct RankRef {
  GangKey gang;
  int32_t rank = 0;

  auto operator<=>(const RankRef&) const = default;
};

// "job mnist g3 rank 0".
std::string Describe(const RankRef& ref);

}  // namespace lockstep::worker::agent

#endif  // LOCKSTEP_WORKER_AGENT_CORE_GANG_KEY_H_
