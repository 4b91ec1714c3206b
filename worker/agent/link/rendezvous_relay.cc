#include "worker/agent/link/rendezvous_relay.h"

#include <charconv>
#include <string_view>
#include <system_error>

#include "common/base/logging.h"
#include "worker/agent/core/printable_text.h"

namespace lockstep::worker::agent {
namespace {

constexpr size_t kMaxPutBytes = 64 << 20;  // Per gang.

bool IsKey(const std::string& name) {
  return !name.empty() && name.size() <= kMaxWireKey &&
         PrintableText(name, kMaxWireKey) == name;
}

// Of the first communicator of a generation the names have no prefix.
uint32_t RecoveryOf(std::string_view name) {
  constexpr std::string_view kPrefix = "recovery/";
  if (!name.starts_with(kPrefix)) return 0;
  name.remove_prefix(kPrefix.size());
  uint32_t recovery = 0;
  const char* const end = name.data() + name.size();
  const auto number = std::from_chars(name.data(), end, recovery);
  return number.ec == std::errc() && number.ptr != end && *number.ptr == '/'
             ? recovery
             : 0;
}

}  // namespace

void RendezvousRelay::SendPut(const GangKey& key, const std::string& name,
                              const std::string& value) {
  v1::WorkerMessage message;
  *message.mutable_rendezvous_put() =
      ToRendezvousPut({key.job, key.generation, name, value});
  send_(message);
}

void RendezvousRelay::SendGet(const GangKey& key, const std::string& name) {
  v1::WorkerMessage message;
  *message.mutable_rendezvous_get() =
      ToRendezvousGet({key.job, key.generation, name, ""});
  send_(message);
}

void RendezvousRelay::Put(const RankRef& ref, const std::string& name,
                          const std::string& value) {
  Entries& gang = gangs_[ref.gang];
  if (RecoveryOf(name) < gang.recovery) return;
  if (!IsKey(name) || value.size() > kMaxWireValue ||
      gang.put_bytes + name.size() + value.size() > kMaxPutBytes) {
    LOG_WARN("{}: refused a rendezvous entry: value of {} bytes, key of {}",
             Describe(ref), value.size(), name.size());
    return;
  }
  // Written once; a repeat is sent again, in case it was lost.
  const auto [it, is_new] = gang.puts.emplace(name, value);
  if (is_new) gang.put_bytes += name.size() + value.size();
  SendPut(ref.gang, name, it->second);
}

void RendezvousRelay::Get(const RankRef& ref, const std::string& name) {
  if (!IsKey(name)) return;
  Entries& gang = gangs_[ref.gang];
  if (RecoveryOf(name) < gang.recovery) return;
  if (const auto it = gang.values.find(name); it != gang.values.end()) {
    deliver_(ref, name, it->second);
    return;
  }
  gang.gets[name].insert(ref.rank);
  SendGet(ref.gang, name);
}

void RendezvousRelay::OnValue(const RendezvousEntry& entry) {
  const GangKey key{entry.job, entry.generation};
  const auto it = gangs_.find(key);
  if (it == gangs_.end() || RecoveryOf(entry.key) < it->second.recovery) return;
  it->second.values[entry.key] = entry.value;
  const auto waiting = it->second.gets.extract(entry.key);
  if (waiting.empty()) return;
  for (const int32_t rank : waiting.mapped()) {
    deliver_({key, rank}, entry.key, entry.value);
  }
}

void RendezvousRelay::Raise(const GangKey& key, uint32_t recovery) {
  Entries& gang = gangs_[key];
  if (recovery <= gang.recovery) return;
  gang.recovery = recovery;
  const auto is_old = [&](const auto& entry) {
    return RecoveryOf(entry.first) < recovery;
  };
  std::erase_if(gang.puts, is_old);
  std::erase_if(gang.values, is_old);
  std::erase_if(gang.gets, is_old);
  gang.put_bytes = 0;
  for (const auto& [name, value] : gang.puts) {
    gang.put_bytes += name.size() + value.size();
  }
}

void RendezvousRelay::SendAll() {
  for (const auto& [key, gang] : gangs_) {
    for (const auto& [name, value] : gang.puts) SendPut(key, name, value);
    for (const auto& [name, ranks] : gang.gets) SendGet(key, name);
  }
}

}  // namespace lockstep::worker::agent
