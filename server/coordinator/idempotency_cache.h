// The answers to commands. A repeat of a command, by caller and request id,
// gets the first answer.
//
// The cache is bounded. A new answer displaces the oldest ones: those of its
// caller when the caller has too many, otherwise the oldest of all. A command
// whose answer was displaced runs again when it is repeated.
// Pure; thread-compatible.
#ifndef LOCKSTEP_SERVER_COORDINATOR_IDEMPOTENCY_CACHE_H_
#define LOCKSTEP_SERVER_COORDINATOR_IDEMPOTENCY_CACHE_H_

#include <cstddef>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "common/base/clock.h"
#include "common/base/status.h"
#include "server/store/store.h"

namespace lockstep::server {

struct IdempotencyLimits {
  size_t of_caller = 20'000;
  size_t bytes_of_caller = 64 << 20;
  size_t of_all = 100'000;
  size_t bytes_of_all = 256 << 20;
};

// Identifies a command and its content.
struct RequestKey {
  std::string client;
  // Empty if the answer is not stored (validate_only).
  std::string id;
  std::string method;
  std::string content_hash;
};

class IdempotencyCache {
 public:
  explicit IdempotencyCache(const IdempotencyLimits& limits)
      : limits_(limits) {}

  // Returns the first answer, or nullopt for a new command. InvalidArgument if
  // the id was used with other content.
  StatusOr<std::optional<std::string>> AnswerTo(
      const RequestKey& request) const;
  // Returns null if there is none.
  const AnsweredRequest* Find(const std::string& client,
                              const std::string& id) const;
  bool empty() const { return answers_.empty(); }
  // Returns the requests that `next` would displace.
  std::vector<RequestName> Displaced(const AnsweredRequest& next) const;
  // Adds `answer` regardless of the limits.
  void Add(AnsweredRequest answer);
  void Forget(const RequestName& name);
  void ForgetBefore(WallTime time);

 private:
  // Oldest first.
  using Ages = std::set<std::pair<WallTime, RequestName>>;
  struct Group {
    Ages ages;
    size_t bytes = 0;
  };

  static size_t BytesOf(const AnsweredRequest& answer);
  // Adds the oldest requests of `group` to `gone` until the rest plus `bytes`
  // is within the limits.
  void Trim(const Group& group, size_t most, size_t most_bytes, size_t bytes,
            std::set<RequestName>* gone) const;

  const IdempotencyLimits limits_;
  std::map<RequestName, AnsweredRequest> answers_;
  Group all_;
  std::map<std::string, Group> callers_;
};

// Returns the record of `response` to store with the command's effect. Nullopt
// for a command without an id.
std::optional<AnsweredRequest> AnsweredWith(const RequestKey& request,
                                            const std::string& response,
                                            WallTime now);

}  // namespace lockstep::server

#endif  // LOCKSTEP_SERVER_COORDINATOR_IDEMPOTENCY_CACHE_H_
