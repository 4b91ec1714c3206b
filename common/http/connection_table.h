// Which connections an HTTP server has, and which of them it closes when one
// too many comes, or when its time is over. Decisions only: values in, ids out.
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

namespace lockstep {

enum class ConnectionPhase {
  kHandshake,
  kIdle,
  kHead,
  // A handler makes the answer, or will.
  kHandling,
  kWriting,
  kFarewell,
};

// As which address connections from `from` are counted: an IPv6 host has a
// whole /64. Not for people to read.
std::string CountedAs(const sockaddr_storage& from);

// Not thread-safe.
class ConnectionTable {
 public:
  using Id = uint64_t;

  explicit ConnectionTable(const ConnectionLimits& limits) : limits_(limits) {}

  Id Add(const std::string& address, MonoTime now);
  void Remove(Id id);
  // A phase lasts `limit` at most, however many bytes trickle in it.
  void Enter(Id id, ConnectionPhase phase, MonoTime now, Duration limit);
  // Moves the end of the phase forward; never back.
  void EndBy(Id id, MonoTime deadline);
  // The answer that `id` writes from now on; 0: written.
  void SetAnswerBytes(Id id, size_t bytes);

  // The one to close before a connection from `address` is added; none: there
  // is room. The one that is in its phase for longest; one that waits for its
  // handler only if there is no other.
  std::optional<Id> Evicted(const std::string& address) const;
  // The one to close where the process may open no more files.
  std::optional<Id> Longest() const { return Longest(nullptr); }
  // The one to close because answers take too much memory.
  std::optional<Id> TooMuchWritten() const;
  std::vector<Id> Overdue(MonoTime now) const;
  // MonoTime::max(): there is no connection.
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

  // Of `address` or, if null, of all.
  std::optional<Id> Longest(const std::string* address) const;

  const ConnectionLimits limits_;
  Id next_ = 1;
  // A few hundred at most: everything is found by looking at all of them.
  std::map<Id, Entry> entries_;
  std::map<std::string, size_t> of_address_;
  size_t answer_bytes_ = 0;
};

}  // namespace lockstep

#endif  // LOCKSTEP_COMMON_HTTP_CONNECTION_TABLE_H_
