#include "worker/collective/hierarchical/host_exchange.h"

#include <algorithm>
#include <cstring>

#include "worker/collective/operation.h"

namespace lockstep::worker::collective::hierarchical {

Status HostExchange::Run(const Operation& operation, MonoTime deadline) {
  part_of_ = operation.part_of == OperationWords() ? WordsOf(operation)
                                                   : operation.part_of;
  LOCKSTEP_RETURN_IF_ERROR(GatherCounts(operation, deadline));
  LOCKSTEP_ASSIGN_OR_RETURN(const uint64_t most,
                            AgreeOnMost(operation, deadline));
  rounds_ = RoundsFor(most, operation.slice.type);
  for (uint64_t round = 0; round < rounds_; ++round) {
    LOCKSTEP_RETURN_IF_ERROR(RunRound(operation, most, round, deadline));
  }
  return OkStatus();
}

Status HostExchange::GatherCounts(const Operation& operation,
                                  MonoTime deadline) {
  const auto row = static_cast<size_t>(layout_.size() + 1);
  const auto local = static_cast<size_t>(layout_.local_size(rank_));
  counts_.assign(local * row, 0);
  uint64_t* const own = counts_.data() + layout_.place[rank_] * row;
  for (int rank = 0; rank < layout_.size(); ++rank) {
    own[rank] = operation.sends[rank].count;
    if (layout_.host[rank] != layout_.host[rank_]) {
      own[layout_.size()] += operation.receives[rank].count;
    }
  }
  const Buffer* const any = sides_.memory()->Within(operation.slice.buffer);
  return sides_.RunWithin(
      {.kind = CollectiveKind::kAllGather,
       .slice = AnySlice(any, counts_.data(), counts_.size(), DataType::kInt64),
       .part_of = part_of_},
      deadline);
}

StatusOr<uint64_t> HostExchange::AgreeOnMost(const Operation& operation,
                                             MonoTime deadline) {
  const int local = layout_.local_size(rank_);
  int64_t most = 0;
  for (int place = 0; place < local; ++place) {
    uint64_t passes = 0;
    for (int host = 0; host < layout_.hosts(); ++host) {
      for (int from = 0; from < local && host != layout_.host[rank_]; ++from) {
        passes += Sends(from, host, place);
      }
    }
    const uint64_t gets =
        counts_[place * (layout_.size() + 1) + layout_.size()];
    most = std::max(most, static_cast<int64_t>(std::max(passes, gets)));
  }
  const Buffer* const any = sides_.memory()->Between(operation.slice.buffer);
  LOCKSTEP_ASSIGN_OR_RETURN(
      const auto work,
      sides_.StartBetween({.slice = AnySlice(any, &most, 1, DataType::kInt64),
                           .op = ReduceOp::kMax,
                           .part_of = part_of_}));
  LOCKSTEP_RETURN_IF_ERROR(sides_.WaitBetween(work.get(), deadline));
  return static_cast<uint64_t>(most);
}

size_t HostExchange::PassedOn(int host, uint64_t round) const {
  if (host == layout_.host[rank_]) return 0;
  size_t count = 0;
  for (int from = 0; from < layout_.local_size(rank_); ++from) {
    count +=
        ShareOf(Sends(from, host, layout_.place[rank_]), rounds_, round).count;
  }
  return count;
}

Status HostExchange::RunRound(const Operation& operation, uint64_t most,
                              uint64_t round, MonoTime deadline) {
  const size_t element = SizeOf(operation.slice.type);
  size_t passed = 0;
  for (int host = 0; host < layout_.hosts(); ++host) {
    passed += PassedOn(host, round);
  }
  LOCKSTEP_RETURN_IF_ERROR(passed_.Reserve(passed * element));
  char* staged = passed_.data();
  for (int host = 0; host < layout_.hosts(); ++host) {
    LOCKSTEP_RETURN_IF_ERROR(
        RunWithin(operation, host, round, staged, deadline));
    staged += PassedOn(host, round) * element;
  }
  LOCKSTEP_RETURN_IF_ERROR(RunBetween(operation, most, round, deadline));
  Unpack(operation, round);
  return OkStatus();
}

// What is for the ranks of `host`: of the own one to its place, of another one
// to `staged`.
Status HostExchange::RunWithin(const Operation& operation, int host,
                               uint64_t round, char* staged,
                               MonoTime deadline) {
  const size_t element = SizeOf(operation.slice.type);
  const int local = layout_.local_size(rank_);
  const int place = layout_.place[rank_];
  std::vector<PeerPart> sends;
  std::vector<PeerPart> receives;
  size_t most = 0;
  for (int peer = 0; peer < local; ++peer) {
    const PeerPart& send = operation.sends[layout_.ranks[host][peer]];
    sends.push_back(PartOf(send, ShareOf(send.count, rounds_, round), element));
    if (host == layout_.host[rank_]) {
      const PeerPart& receive = operation.receives[layout_.ranks[host][peer]];
      receives.push_back(
          PartOf(receive, ShareOf(receive.count, rounds_, round), element));
    } else {
      const Share share = ShareOf(Sends(peer, host, place), rounds_, round);
      receives.push_back({staged, share.count});
      staged += share.count * element;
    }
    size_t to_others = 0;
    for (int to = 0; to < local; ++to) {
      if (to == peer) continue;
      to_others += ShareOf(Sends(peer, host, to), rounds_, round).count;
    }
    most = std::max(most, to_others);
  }
  return sides_.RunWithin(
      {.kind = CollectiveKind::kAllToAll,
       .slice = {sides_.memory()->Within(operation.slice.buffer), 0, most,
                 operation.slice.type},
       .part_of = part_of_,
       .sends = sends,
       .receives = receives},
      deadline);
}

Status HostExchange::RunBetween(const Operation& operation, uint64_t most,
                                uint64_t round, MonoTime deadline) {
  const size_t element = SizeOf(operation.slice.type);
  std::vector<PeerPart> sends;
  std::vector<PeerPart> receives;
  size_t received = 0;
  char* staged = passed_.data();
  for (int host = 0; host < layout_.hosts(); ++host) {
    const size_t passed = PassedOn(host, round);
    sends.push_back({staged, passed});
    staged += passed * element;
    size_t count = 0;
    for (const int from : layout_.ranks[host]) {
      if (host == layout_.host[rank_]) continue;
      count += ShareOf(operation.receives[from].count, rounds_, round).count;
    }
    receives.push_back({nullptr, count});
    received += count;
  }
  LOCKSTEP_RETURN_IF_ERROR(received_.Reserve(received * element));
  char* place = received_.data();
  for (PeerPart& part : receives) {
    part.data = place;
    place += part.count * element;
  }
  LOCKSTEP_ASSIGN_OR_RETURN(
      const auto work,
      sides_.StartBetween(
          {.kind = CollectiveKind::kAllToAll,
           .slice = {sides_.memory()->Between(operation.slice.buffer), 0, most,
                     operation.slice.type},
           .part_of = part_of_,
           .sends = sends,
           .receives = receives}));
  return sides_.WaitBetween(work.get(), deadline);
}

void HostExchange::Unpack(const Operation& operation, uint64_t round) const {
  const size_t element = SizeOf(operation.slice.type);
  const char* place = received_.data();
  for (int host = 0; host < layout_.hosts(); ++host) {
    if (host == layout_.host[rank_]) continue;
    for (const int from : layout_.ranks[host]) {
      const PeerPart& whole = operation.receives[from];
      const PeerPart part =
          PartOf(whole, ShareOf(whole.count, rounds_, round), element);
      if (part.count == 0) continue;
      std::memcpy(part.data, place, part.count * element);
      place += part.count * element;
    }
  }
}

}  // namespace lockstep::worker::collective::hierarchical
