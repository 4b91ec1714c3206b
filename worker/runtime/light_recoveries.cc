#include "worker/runtime/light_recoveries.h"

#include <fmt/format.h>

#include <algorithm>

namespace lockstep::worker::runtime {
namespace {

constexpr int kMostLostPeers = 1024;  // A message of the link has 64 KiB.

// Before the keys of the rendezvous of one recovery.
std::string KeyPrefix(uint32_t recovery) {
  return recovery == 0 ? "" : fmt::format("recovery/{}/", recovery);
}

// The ranks that are not members of the group of `recovery`.
StatusOr<std::vector<int>> AwayIn(const rank_link::RankLink& link,
                                  uint32_t recovery) {
  const v1::RankWelcome welcome = link.welcome();
  if (welcome.recovery() > recovery) {
    return Aborted("recovery {} has begun", welcome.recovery());
  }
  return std::vector<int>(welcome.away_ranks().begin(),
                          welcome.away_ranks().end());
}

// The rendezvous is that of `recovery` from now on.
Status Take(rank_link::RankLink* link, uint32_t recovery) {
  if (recovery == 0) return OkStatus();
  LOCKSTEP_ASSIGN_OR_RETURN(
      const uint32_t newest,
      link->WaitForRecovery(recovery - 1, MonotonicNow()));
  if (newest == recovery) return OkStatus();
  return Aborted("recovery {} has begun", newest);
}

}  // namespace

void LightRecoveries::Announce(uint32_t recovery) {
  MutexLock lock(&mu_);
  announced_ = recovery;
  announcement_.NotifyAll();
}

void LightRecoveries::End(const Status& why) {
  MutexLock lock(&mu_);
  if (ended_.ok()) ended_ = why;
  announcement_.NotifyAll();
}

StatusOr<uint32_t> LightRecoveries::Newest() {
  uint32_t recovery = 0;
  LOCKSTEP_RETURN_IF_ERROR(with_link_([&](rank_link::RankLink* link) {
    recovery = link->welcome().recovery();
    return OkStatus();
  }));
  return recovery;
}

Status LightRecoveries::Park(uint32_t left, const std::vector<int>& peers) {
  v1::RankReport report;
  report.set_parked(left + 1);
  for (const int peer : peers) {
    if (report.lost_peers_size() < kMostLostPeers) report.add_lost_peers(peer);
  }
  return with_link_([&](rank_link::RankLink* link) {
    link->Report(report);
    return OkStatus();
  });
}

StatusOr<uint32_t> LightRecoveries::Await(uint32_t above, Duration timeout) {
  const MonoTime deadline = MonotonicNow() + timeout;
  for (;;) {
    LOCKSTEP_ASSIGN_OR_RETURN(const uint32_t recovery, Newest());
    if (recovery > above) return recovery;
    MutexLock lock(&mu_);
    LOCKSTEP_RETURN_IF_ERROR(ended_);
    if (announced_ > above) continue;
    if (!announcement_.WaitUntil(&mu_, deadline) &&
        MonotonicNow() >= deadline) {
      return DeadlineExceeded("no recovery after recovery {} came in {}", above,
                              FormatDuration(timeout));
    }
  }
}

Status LightRecoveries::SetElastic(bool elastic) {
  return with_link_([&](rank_link::RankLink* /*link*/) {
    elastic_ = elastic;
    return OkStatus();
  });
}

StatusOr<std::vector<int>> LightRecoveries::Away(uint32_t recovery) {
  StatusOr<std::vector<int>> away = std::vector<int>();
  LOCKSTEP_RETURN_IF_ERROR(with_link_([&](rank_link::RankLink* link) {
    away = AwayIn(*link, recovery);
    return OkStatus();
  }));
  return away;
}

Status LightRecoveries::Put(uint32_t recovery, const std::string& key,
                            std::string_view value) {
  return with_link_([&](rank_link::RankLink* link) -> Status {
    LOCKSTEP_RETURN_IF_ERROR(Take(link, recovery));
    return link->Put(KeyPrefix(recovery) + key, value);
  });
}

StatusOr<std::string> LightRecoveries::Get(uint32_t recovery,
                                           const std::string& key,
                                           Duration timeout) {
  const MonoTime deadline = MonotonicNow() + timeout;
  for (;;) {
    const MonoTime slice = std::min(deadline, MonotonicNow() + kLinkSlice);
    std::string value;
    const Status status = with_link_([&](rank_link::RankLink* link) -> Status {
      LOCKSTEP_RETURN_IF_ERROR(Take(link, recovery));
      LOCKSTEP_ASSIGN_OR_RETURN(value,
                                link->Get(KeyPrefix(recovery) + key, slice));
      return OkStatus();
    });
    if (status.ok()) return value;
    if (status.code() != StatusCode::kDeadlineExceeded || slice == deadline) {
      return status;
    }
  }
}

StatusOr<std::optional<std::vector<int>>> LightRecoveries::Join(
    uint32_t recovery) {
  std::optional<std::vector<int>> away;
  LOCKSTEP_RETURN_IF_ERROR(with_link_([&](rank_link::RankLink* link) {
    if (StatusOr<std::vector<int>> known = AwayIn(*link, recovery);
        known.ok()) {
      away = *std::move(known);
      link->SendJoined(recovery, /*recoverable=*/true, elastic_);
    }
    return OkStatus();
  }));
  return away;
}

}  // namespace lockstep::worker::runtime
