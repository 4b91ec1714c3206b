#include "worker/agent/link/rendezvous_relay.h"

#include "common/base/logging.h"
#include "worker/agent/core/printable_text.h"

namespace lockstep::worker::agent {
namespace {

constexpr size_t kMaxPutBytes = 64 << 20;  // Per gang.

bool IsKey(const std::string& name) {
  return !name.empty() && name.size() <= kMaxWireKey &&
         PrintableText(name, kMaxWireKey) == name;
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
  if (it == gangs_.end()) return;
  it->second.values[entry.key] = entry.value;
  const auto waiting = it->second.gets.extract(entry.key);
  if (waiting.empty()) return;
  for (const int32_t rank : waiting.mapped()) {
    deliver_({key, rank}, entry.key, entry.value);
  }
}

void RendezvousRelay::SendAll() {
  for (const auto& [key, gang] : gangs_) {
    for (const auto& [name, value] : gang.puts) SendPut(key, name, value);
    for (const auto& [name, ranks] : gang.gets) SendGet(key, name);
  }
}

}  // namespace lockstep::worker::agent
