// The connections of an HTTP server, and the choice of which to close when
// there are too many or one is overdue. Decisions only: values in, ids out.
#ifndef LOCKSTEP_COMMON_HTTP_CONNECTION_TABLE_H_
#define LOCKSTEP_COMMON_HTTP_CONNECTION_TABLE_H_

#include <sys/socket.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "common/base/clock.h"
#include "common/http/limits.h"

namespace lockstep::http {

enum class ConnectionPhase {
  kHandshake,
  kIdle,
  kHead,
  // A handler makes the answer or is about to.
  kHandling,
  kWriting,
  kFarewell,
};

// Returns the key under which connections from `from` are counted: an IPv6 host
// is its /64. Not printable.
std::string CountedAs(const sockaddr_storage& from);

// Not thread-safe.
class ConnectionTable {
 public:
  using Id = uint64_t;

  explicit ConnectionTable(const ConnectionLimits& limits) : limits_(limits) {}

  Id Add(const std::string& address, MonoTime now);
  void Remove(Id id);
  // A phase lasts at most `limit`, however slowly bytes arrive.
  void Enter(Id id, ConnectionPhase phase, MonoTime now, Duration limit);
  // Shortens the phase to `deadline`. Never extends it.
  void EndBy(Id id, MonoTime deadline);
  // The size of the answer that `id` writes; 0 when it is written.
  void SetAnswerBytes(Id id, size_t bytes);

  // Returns the connection to close before one from `address` is added, or
  // nullopt if there is room. It is the connection that has been in its phase
  // longest. One that waits for its handler is chosen only if there is no
  // other.
  std::optional<Id> Evicted(const std::string& address) const;
  // Returns the connection to close if the process may open no more files.
  std::optional<Id> Longest() const { return Longest(nullptr); }
  // Returns the connection to close if answers take too much memory.
  std::optional<Id> TooMuchWritten() const;
  std::vector<Id> Overdue(MonoTime now) const;
  // MonoTime::max() without connections.
  MonoTime NextDeadline() const;

  std::vector<Id> Ids() const;
  // REQUIRES: `id` is in the table.
  ConnectionPhase phase(Id id) const { return entries_.at(id).phase; }
  bool empty() const { return entries_.empty(); }

 private:
  struct Entry {
    std::string address;
    ConnectionPhase phase = ConnectionPhase::kHandshake;
    MonoTime since{};
    MonoTime deadline = MonoTime::max();
    size_t answer_bytes = 0;
  };

  // Among those of `address`, or among all if it is null.
  std::optional<Id> Longest(const std::string* address) const;

  const ConnectionLimits limits_;
  Id next_ = 1;
  // At most a few hundred, so all queries are linear scans.
  std::map<Id, Entry> entries_;
  std::map<std::string, size_t> of_address_;
  size_t answer_bytes_ = 0;
};

}  // namespace lockstep::http

#endif  // LOCKSTEP_COMMON_HTTP_CONNECTION_TABLE_H_
