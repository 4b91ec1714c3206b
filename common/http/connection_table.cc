#include "common/http/connection_table.h"

#include <netinet/in.h>

#include <algorithm>
#include <utility>

namespace lockstep::http {

std::string CountedAs(const sockaddr_storage& from) {
  const auto* const bytes = reinterpret_cast<const char*>(&from);
  if (from.ss_family == AF_INET) {
    return {bytes + offsetof(sockaddr_in, sin_addr), 4};
  }
  if (from.ss_family != AF_INET6) return "";
  const char* const address = bytes + offsetof(sockaddr_in6, sin6_addr);
  const auto& in6 = reinterpret_cast<const sockaddr_in6&>(from).sin6_addr;
  return IN6_IS_ADDR_V4MAPPED(&in6) ? std::string(address + 12, 4)
                                    : std::string(address, 8);
}

ConnectionTable::Id ConnectionTable::Add(const std::string& address,
                                         MonoTime now) {
  const Id id = next_++;
  entries_[id] = {.address = address, .since = now};
  ++of_address_[address];
  return id;
}

void ConnectionTable::Remove(Id id) {
  const auto entry = entries_.find(id);
  if (entry == entries_.end()) return;
  SetAnswerBytes(id, 0);
  const auto count = of_address_.find(entry->second.address);
  if (--count->second == 0) of_address_.erase(count);
  entries_.erase(entry);
}

void ConnectionTable::Enter(Id id, ConnectionPhase phase, MonoTime now,
                            Duration limit) {
  const auto entry = entries_.find(id);
  if (entry == entries_.end()) return;
  entry->second.phase = phase;
  entry->second.since = now;
  entry->second.deadline = now + limit;
}

void ConnectionTable::EndBy(Id id, MonoTime deadline) {
  const auto entry = entries_.find(id);
  if (entry == entries_.end()) return;
  entry->second.deadline = std::min(entry->second.deadline, deadline);
}

void ConnectionTable::SetAnswerBytes(Id id, size_t bytes) {
  const auto entry = entries_.find(id);
  if (entry == entries_.end()) return;
  answer_bytes_ += bytes - std::exchange(entry->second.answer_bytes, bytes);
}

std::optional<ConnectionTable::Id> ConnectionTable::Evicted(
    const std::string& address) const {
  const auto count = of_address_.find(address);
  if (count != of_address_.end() &&
      count->second >= limits_.connections_of_address) {
    return Longest(&address);
  }
  if (entries_.size() >= limits_.connections) return Longest(nullptr);
  return std::nullopt;
}

std::optional<ConnectionTable::Id> ConnectionTable::Longest(
    const std::string* address) const {
  std::optional<Id> longest;
  std::pair<bool, MonoTime> least;
  for (const auto& [id, entry] : entries_) {
    if (address != nullptr && entry.address != *address) continue;
    const std::pair<bool, MonoTime> rank(
        entry.phase == ConnectionPhase::kHandling, entry.since);
    if (longest && rank >= least) continue;
    longest = id;
    least = rank;
  }
  return longest;
}

std::optional<ConnectionTable::Id> ConnectionTable::TooMuchWritten() const {
  if (answer_bytes_ <= limits_.answer_bytes) return std::nullopt;
  const Entry* oldest = nullptr;
  std::optional<Id> found;
  size_t writing = 0;
  for (const auto& [id, entry] : entries_) {
    if (entry.answer_bytes == 0) continue;
    ++writing;
    if (oldest != nullptr && oldest->since <= entry.since) continue;
    oldest = &entry;
    found = id;
  }
  return writing > 1 ? found : std::nullopt;
}

std::vector<ConnectionTable::Id> ConnectionTable::Overdue(MonoTime now) const {
  std::vector<Id> overdue;
  for (const auto& [id, entry] : entries_) {
    if (entry.deadline <= now) overdue.push_back(id);
  }
  return overdue;
}

MonoTime ConnectionTable::NextDeadline() const {
  MonoTime next = MonoTime::max();
  for (const auto& [id, entry] : entries_) {
    next = std::min(next, entry.deadline);
  }
  return next;
}

std::vector<ConnectionTable::Id> ConnectionTable::Ids() const {
  std::vector<Id> ids;
  for (const auto& [id, entry] : entries_) ids.push_back(id);
  return ids;
}

}  // namespace lockstep::http
