// The cluster spec of one generation, shared by all of the gang's nodes, so
// that it is stored and encoded once.
#ifndef LOCKSTEP_SERVER_COORDINATOR_SHARED_CLUSTER_SPEC_H_
#define LOCKSTEP_SERVER_COORDINATOR_SHARED_CLUSTER_SPEC_H_

#include <mutex>
#include <string>
#include <utility>

#include "common/model/cluster_spec.h"

namespace lockstep::server {

// Thread-safe.
class SharedClusterSpec {
 public:
  using Encode = std::string (*)(const ClusterSpec& spec);

  explicit SharedClusterSpec(ClusterSpec spec) : spec_(std::move(spec)) {}

  const ClusterSpec& spec() const { return spec_; }
  // The first caller's `encode` is used for all callers: the coordinator does
  // not know the wire format, and all its links use the same.
  const std::string& Encoded(Encode encode) const {
    std::call_once(once_, [&] { encoded_ = encode(spec_); });
    return encoded_;
  }

 private:
  const ClusterSpec spec_;
  mutable std::once_flag once_;
  mutable std::string encoded_;
};

}  // namespace lockstep::server

#endif  // LOCKSTEP_SERVER_COORDINATOR_SHARED_CLUSTER_SPEC_H_
