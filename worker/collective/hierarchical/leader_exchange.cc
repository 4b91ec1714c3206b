#include "worker/collective/hierarchical/leader_exchange.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <utility>

#include "worker/collective/operation.h"

namespace lockstep::worker::collective::hierarchical {
namespace {

// From this size on what stays on a host moves while other bytes cross.
constexpr size_t kBesideBytes = size_t{256} << 10;

}  // namespace

Status LeaderExchange::Run(const Operation& operation, MonoTime deadline) {
  operation_ = &operation;
  deadline_ = deadline;
  part_of_ = operation.part_of == OperationWords() ? WordsOf(operation)
                                                   : operation.part_of;
  if (layout_.hosts() == 1) return RunLocal();
  LOCKSTEP_RETURN_IF_ERROR(GatherCounts());
  LOCKSTEP_RETURN_IF_ERROR(AgreeOnRounds());
  for (round_ = 0; round_ < rounds_; ++round_) {
    const Status status = !leads()            ? RunFollower()
                          : local_size() == 1 ? RunAlone()
                                              : RunLeader();
    LOCKSTEP_RETURN_IF_ERROR(status);
  }
  return OkStatus();
}

// ---- What goes where ----

Status LeaderExchange::GatherCounts() {
  const auto ranks = static_cast<size_t>(layout_.size());
  const auto local = static_cast<size_t>(local_size());
  counts_.assign(local * 2 * ranks, 0);
  uint64_t* const own = counts_.data() + layout_.place[rank_] * 2 * ranks;
  for (size_t rank = 0; rank < ranks; ++rank) {
    own[rank] = operation_->sends[rank].count;
    own[ranks + rank] = operation_->receives[rank].count;
  }
  if (local == 1) return OkStatus();
  const Buffer* const any = sides_.memory()->Within(operation_->slice.buffer);
  return sides_.RunWithin(
      {.kind = CollectiveKind::kAllGather,
       .slice = AnySlice(any, counts_.data(), counts_.size(), DataType::kInt64),
       .part_of = part_of_},
      deadline_);
}

// What is small in any case needs no agreement: no rank sends more than the
// slice's count, which is the same on all ranks.
Status LeaderExchange::AgreeOnRounds() {
  const size_t in_round = kRoundBytes / element();
  const auto others = static_cast<size_t>(layout_.size() - 1);
  most_ = static_cast<int64_t>(in_round);
  rounds_ = 1;
  if (operation_->slice.count <= in_round / others) return OkStatus();
  const Buffer* const buffer = operation_->slice.buffer;
  if (leads()) {
    most_ = 0;
    for (const Way way : {Way::kOut, Way::kIn}) {
      uint64_t count = 0;
      for (const Route& route : ByPlace()) count += CountOf(way, route);
      most_ = std::max(most_, static_cast<int64_t>(count));
    }
    const Buffer* const any = sides_.memory()->Between(buffer);
    LOCKSTEP_ASSIGN_OR_RETURN(
        const auto work,
        sides_.StartBetween(
            {.slice = AnySlice(any, &most_, 1, DataType::kInt64),
             .op = ReduceOp::kMax,
             .part_of = part_of_}));
    LOCKSTEP_RETURN_IF_ERROR(sides_.WaitBetween(work.get(), deadline_));
  }
  if (local_size() > 1) {
    const Buffer* const any = sides_.memory()->Within(buffer);
    LOCKSTEP_RETURN_IF_ERROR(
        sides_.RunWithin({.kind = CollectiveKind::kBroadcast,
                          .slice = AnySlice(any, &most_, 1, DataType::kInt64),
                          .part_of = part_of_},
                         deadline_));
  }
  rounds_ = RoundsFor(static_cast<uint64_t>(most_), operation_->slice.type);
  return OkStatus();
}

uint64_t LeaderExchange::CountOf(Way way, const Route& route) const {
  const auto ranks = static_cast<size_t>(layout_.size());
  const size_t row = static_cast<size_t>(route.place) * 2 * ranks;
  return counts_[row + (way == Way::kIn ? ranks : 0) + route.remote];
}

size_t LeaderExchange::InRound(Way way, const Route& route) const {
  return ShareOf(CountOf(way, route), rounds_, round_).count;
}

size_t LeaderExchange::InRound(Way way, const Routes& routes) const {
  size_t count = 0;
  for (const Route& route : routes) count += InRound(way, route);
  return count;
}

LeaderExchange::Routes LeaderExchange::ByPlace() const {
  Routes routes;
  for (int place = 0; place < local_size(); ++place) {
    for (int host = 0; host < layout_.hosts(); ++host) {
      if (host == layout_.host[rank_]) continue;
      for (const int remote : layout_.ranks[host]) {
        routes.push_back({place, remote});
      }
    }
  }
  return routes;
}

LeaderExchange::Routes LeaderExchange::With(int host, Way way) const {
  Routes routes;
  if (host == layout_.host[rank_]) return routes;
  const auto there = layout_.ranks[host].size();
  const auto here = static_cast<size_t>(local_size());
  for (size_t to = 0; to < (way == Way::kOut ? there : here); ++to) {
    for (size_t from = 0; from < (way == Way::kOut ? here : there); ++from) {
      const size_t place = way == Way::kOut ? from : to;
      const size_t remote = way == Way::kOut ? to : from;
      routes.push_back({static_cast<int>(place), layout_.ranks[host][remote]});
    }
  }
  return routes;
}

LeaderExchange::Routes LeaderExchange::ByHost(Way way) const {
  Routes routes;
  for (int host = 0; host < layout_.hosts(); ++host) {
    const Routes some = With(host, way);
    routes.insert(routes.end(), some.begin(), some.end());
  }
  return routes;
}

void LeaderExchange::Reorder(Way way, const Routes& from, const Routes& to,
                             char** data, char** spare) const {
  if (from == to) return;
  const auto index = [&](const Route& route) {
    return static_cast<size_t>(route.place) * layout_.size() + route.remote;
  };
  std::vector<char*> begins(static_cast<size_t>(local_size()) * layout_.size());
  char* begin = *spare;
  for (const Route& route : to) {
    begins[index(route)] = begin;
    begin += InRound(way, route) * element();
  }
  const char* at = *data;
  for (const Route& route : from) {
    const size_t bytes = InRound(way, route) * element();
    if (bytes == 0) continue;
    std::memcpy(begins[index(route)], at, bytes);
    at += bytes;
  }
  std::swap(*data, *spare);
}

std::vector<PeerPart> LeaderExchange::OwnParts(Way way, int host) const {
  std::vector<PeerPart> parts;
  if (host == layout_.host[rank_]) return parts;
  for (const int remote : layout_.ranks[host]) {
    const PeerPart& whole = way == Way::kOut ? operation_->sends[remote]
                                             : operation_->receives[remote];
    parts.push_back(
        PartOf(whole, ShareOf(whole.count, rounds_, round_), element()));
  }
  return parts;
}

std::vector<PeerPart> LeaderExchange::OwnParts(Way way) const {
  std::vector<PeerPart> parts;
  for (int host = 0; host < layout_.hosts(); ++host) {
    const std::vector<PeerPart> some = OwnParts(way, host);
    parts.insert(parts.end(), some.begin(), some.end());
  }
  return parts;
}

// ---- Rounds ----

Status LeaderExchange::RunLeader() {
  const Routes by_place = ByPlace();
  const size_t bytes = element() * std::max(InRound(Way::kOut, by_place),
                                            InRound(Way::kIn, by_place));
  LOCKSTEP_RETURN_IF_ERROR(first_.Reserve(bytes));
  LOCKSTEP_RETURN_IF_ERROR(second_.Reserve(bytes));
  char* data = first_.data();
  char* spare = second_.data();
  // Of each rank of the host, and of each host: what lies at `memory`.
  const auto blocks = [&](Way way, char* memory, bool hosts) {
    std::vector<PeerPart> parts;
    const int many = hosts ? layout_.hosts() : local_size();
    const size_t routes = by_place.size() / static_cast<size_t>(local_size());
    for (int i = 0; i < many; ++i) {
      const Routes some = hosts ? With(i, way)
                                : Routes(by_place.begin() + i * routes,
                                         by_place.begin() + (i + 1) * routes);
      parts.push_back({memory, InRound(way, some)});
      memory += parts.back().count * element();
    }
    return parts;
  };
  const std::vector<PeerPart> none(static_cast<size_t>(local_size()));
  PackParts(OwnParts(Way::kOut), element(), data);
  std::vector<PeerPart> passed = blocks(Way::kOut, data, false);
  passed[0] = {};
  LOCKSTEP_RETURN_IF_ERROR(Pass(Way::kOut, none, passed));
  Reorder(Way::kOut, by_place, ByHost(Way::kOut), &data, &spare);
  LOCKSTEP_RETURN_IF_ERROR(
      Cross(blocks(Way::kOut, data, true), blocks(Way::kIn, spare, true)));
  std::swap(data, spare);
  Reorder(Way::kIn, ByHost(Way::kIn), by_place, &data, &spare);
  UnpackParts(OwnParts(Way::kIn), element(), data);
  std::vector<PeerPart> dealt = blocks(Way::kIn, data, false);
  dealt[0] = {};
  return Pass(Way::kIn, dealt, none);
}

Status LeaderExchange::RunFollower() {
  const auto bytes = [&](Way way) {
    size_t count = 0;
    for (const PeerPart& part : OwnParts(way)) count += part.count;
    return count * element();
  };
  LOCKSTEP_RETURN_IF_ERROR(first_.Reserve(bytes(Way::kOut)));
  LOCKSTEP_RETURN_IF_ERROR(second_.Reserve(bytes(Way::kIn)));
  const Bundle out(OwnParts(Way::kOut), element(), first_.data());
  const Bundle in(OwnParts(Way::kIn), element(), second_.data());
  out.Pack();
  const std::vector<PeerPart> none(static_cast<size_t>(local_size()));
  std::vector<PeerPart> sends = none;
  std::vector<PeerPart> receives = none;
  sends[0] = out.whole();
  receives[0] = in.whole();
  LOCKSTEP_RETURN_IF_ERROR(Pass(Way::kOut, sends, none));
  if (round_ == 0) LOCKSTEP_RETURN_IF_ERROR(RunLocal());
  LOCKSTEP_RETURN_IF_ERROR(Pass(Way::kIn, none, receives));
  in.Unpack();
  return OkStatus();
}

Status LeaderExchange::RunAlone() {
  std::vector<Bundle> out;
  std::vector<Bundle> in;
  std::vector<PeerPart> sends;
  std::vector<PeerPart> receives;
  for (const Way way : {Way::kOut, Way::kIn}) {
    Scratch& scratch = way == Way::kOut ? first_ : second_;
    LOCKSTEP_RETURN_IF_ERROR(
        scratch.Reserve(InRound(way, ByPlace()) * element()));
    char* staged = scratch.data();
    for (int host = 0; host < layout_.hosts(); ++host) {
      std::vector<Bundle>& bundles = way == Way::kOut ? out : in;
      bundles.emplace_back(OwnParts(way, host), element(), staged);
      const PeerPart& whole = bundles.back().whole();
      (way == Way::kOut ? sends : receives).push_back(whole);
      staged += whole.count * element();
    }
  }
  for (const Bundle& bundle : out) bundle.Pack();
  LOCKSTEP_RETURN_IF_ERROR(Cross(sends, receives));
  for (const Bundle& bundle : in) bundle.Unpack();
  return OkStatus();
}

// ---- Stages ----

size_t LeaderExchange::MostPassed(Way way) const {
  std::vector<size_t> passed(static_cast<size_t>(local_size()));
  for (const Route& route : ByPlace()) {
    passed[static_cast<size_t>(route.place)] += InRound(way, route);
  }
  passed[0] = 0;  // The leader's own.
  return way == Way::kOut
             ? *std::max_element(passed.begin(), passed.end())
             : std::accumulate(passed.begin(), passed.end(), size_t{0});
}

Status LeaderExchange::Pass(Way way, const std::vector<PeerPart>& sends,
                            const std::vector<PeerPart>& receives) {
  return sides_.RunWithin(
      {.kind = CollectiveKind::kAllToAll,
       .slice = {sides_.memory()->Within(operation_->slice.buffer), 0,
                 MostPassed(way), operation_->slice.type},
       .part_of = part_of_,
       .sends = sends,
       .receives = receives},
      deadline_);
}

Status LeaderExchange::Cross(const std::vector<PeerPart>& sends,
                             const std::vector<PeerPart>& receives) {
  // A change of threads takes longer than few bytes do.
  const bool beside =
      round_ == 0 && operation_->slice.count * element() >= kBesideBytes;
  if (round_ == 0 && !beside) LOCKSTEP_RETURN_IF_ERROR(RunLocal());
  LOCKSTEP_ASSIGN_OR_RETURN(
      const auto work,
      sides_.StartBetween(
          {.kind = CollectiveKind::kAllToAll,
           .slice = {sides_.memory()->Between(operation_->slice.buffer), 0,
                     static_cast<size_t>(most_), operation_->slice.type},
           .part_of = part_of_,
           .sends = sends,
           .receives = receives}));
  if (beside) LOCKSTEP_RETURN_IF_ERROR(RunLocal());
  return sides_.WaitBetween(work.get(), deadline_);
}

Status LeaderExchange::RunLocal() {
  if (local_size() == 1) {
    const bool copied =
        CopyOwnPart(*operation_, rank_, [&] { return !sides_.error().ok(); });
    return copied ? OkStatus() : sides_.error();
  }
  std::vector<PeerPart> sends;
  std::vector<PeerPart> receives;
  for (const int peer : layout_.ranks[layout_.host[rank_]]) {
    sends.push_back(operation_->sends[peer]);
    receives.push_back(operation_->receives[peer]);
  }
  return sides_.RunWithin(
      {.kind = CollectiveKind::kAllToAll,
       .slice = {sides_.memory()->Within(operation_->slice.buffer), 0,
                 operation_->slice.count, operation_->slice.type},
       .part_of = part_of_,
       .sends = sends,
       .receives = receives},
      deadline_);
}

}  // namespace lockstep::worker::collective::hierarchical
