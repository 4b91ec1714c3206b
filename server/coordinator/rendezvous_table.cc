#include "server/coordinator/rendezvous_table.h"

#include <utility>

#include "common/model/resources.h"

namespace lockstep::server {
namespace {

// About what the maps need for a key, or for a node that waits for one.
constexpr size_t kEntryBytes = 128;

}  // namespace

Status RendezvousTable::Charge(const JobName& job, Generation generation,
                               size_t bytes, Exchange* exchange) {
  bytes += kEntryBytes;
  if (exchange->bytes + bytes > limits_.of_generation) {
    return ResourceExhausted(
        "job {} g{}: its ranks put more than {} into the rendezvous", job,
        generation, FormatBytes(limits_.of_generation));
  }
  if (bytes_ + bytes > limits_.of_all) {
    return ResourceExhausted(
        "job {} g{}: the ranks of all jobs have put {} into the rendezvous, "
        "and more is not kept",
        job, generation, FormatBytes(limits_.of_all));
  }
  exchange->bytes += bytes;
  bytes_ += bytes;
  return OkStatus();
}

StatusOr<std::set<NodeName>> RendezvousTable::Put(const JobName& job,
                                                  Generation generation,
                                                  const std::string& key,
                                                  const std::string& value) {
  Exchange& exchange = exchanges_[job];
  if (exchange.values.contains(key)) return std::set<NodeName>();
  LOCKSTEP_RETURN_IF_ERROR(
      Charge(job, generation, key.size() + value.size(), &exchange));
  exchange.values[key] = value;
  const auto waiting = exchange.waiting.find(key);
  if (waiting == exchange.waiting.end()) return std::set<NodeName>();
  std::set<NodeName> nodes = std::move(waiting->second);
  exchange.waiting.erase(waiting);
  for (const NodeName& node : nodes) {
    const size_t bytes = key.size() + node.size() + kEntryBytes;
    exchange.bytes -= bytes;
    bytes_ -= bytes;
  }
  return nodes;
}

StatusOr<const std::string*> RendezvousTable::Get(const JobName& job,
                                                  Generation generation,
                                                  const std::string& key,
                                                  const NodeName& node) {
  Exchange& exchange = exchanges_[job];
  const auto value = exchange.values.find(key);
  if (value != exchange.values.end()) return &value->second;
  const auto waiting = exchange.waiting.find(key);
  if (waiting == exchange.waiting.end() || !waiting->second.contains(node)) {
    LOCKSTEP_RETURN_IF_ERROR(
        Charge(job, generation, key.size() + node.size(), &exchange));
    exchange.waiting[key].insert(node);
  }
  return nullptr;
}

void RendezvousTable::Clear(const JobName& job) {
  const auto it = exchanges_.find(job);
  if (it == exchanges_.end()) return;
  bytes_ -= it->second.bytes;
  exchanges_.erase(it);
}

}  // namespace lockstep::server
