#include "server/core/strikes.h"

#include <fmt/format.h>

#include <algorithm>

namespace lockstep::server {
namespace {

using lockstep::Describe;

// Places remembered per job.
constexpr size_t kMaxKillers = 8;
// Everybody sees why a node is kept apart, but ranks belong to users. So their
// texts are not part of the reason.
constexpr char kReportedByRanks[] = "their ranks lost each other";

}  // namespace

Duration Strikes::For(int times) const {
  Duration wait = options_.first;
  for (int i = 1; i < times && wait < options_.longest; ++i) wait *= 2;
  return std::min(wait, options_.longest);
}

void Strikes::Strike(const NodeName& node, const std::string& why, Time now,
                     News* news) {
  Host& host = hosts_[node];
  // Failures during a cool-down began before it.
  if (host.cools) return;
  host.strikes.push_back(now.mono);
  while (now.mono - host.strikes.front() > options_.window) {
    host.strikes.pop_front();
  }
  if (host.strikes.size() < options_.strikes) {
    host.why = why;
    return;
  }
  host.strikes.clear();
  const Duration wait = For(++host.times);
  host.cools = true;
  host.end = now.mono + wait;
  host.cooling = {
      host.why.empty() || host.why == why ? why : host.why + "; " + why, now,
      now.wall + wait};
  host.why.clear();
  news->cooled.emplace_back(node, host.cooling);
}

void Strikes::Part(const LostPair& lost, Time now, News* news) {
  const bool in_order = lost.from < lost.to;
  const PairKey key(in_order ? lost.from : lost.to,
                    in_order ? lost.to : lost.from);
  Pair& pair = pairs_[key];
  if (pair.parted) return;
  const bool believed = lost.tested || pair.doubted || pair.times > 0;
  pair.end = now.mono;
  if (!believed) {
    pair.doubted = true;
    return;
  }
  const Duration wait = For(++pair.times);
  pair.doubted = false;
  pair.parted = true;
  pair.end = now.mono + wait;
  pair.apart = {key.first,
                key.second,
                lost.tested ? Describe({lost}) : kReportedByRanks,
                now,
                now.wall + wait,
                lost.tested};
  news->apart.push_back(pair.apart);
}

Strikes::News Strikes::Take(const std::string& uid, Generation generation,
                            const GangEvidence& evidence, const NodeName& keep,
                            Time now) {
  News news;
  Generation& taken = taken_[uid];
  if (generation <= taken) return news;
  taken = generation;
  // Reports of ranks are not strikes if the nodes disagree, were not asked or
  // did not answer.
  std::vector<LostPair> lost;
  for (const LostPair& pair : evidence.pairs) {
    Part(pair, now, &news);
    if (pair.tested) lost.push_back(pair);
  }
  for (const NodeName& node : SmallestCover(lost, keep)) {
    std::vector<LostPair> own;
    for (const LostPair& pair : lost) {
      if (pair.from == node || pair.to == node) own.push_back(pair);
    }
    // For a single pair the faulty node is unknown.
    if (own.size() >= 2) Strike(node, Describe(own), now, &news);
  }
  for (const NodeName& node : evidence.late) {
    Strike(node, "it did not get ready in time", now, &news);
  }
  return news;
}

void Strikes::NoteKill(const std::string& uid, const NodeName& node, Time now) {
  std::map<NodeName, MonoTime>& killers = kills_[uid];
  if (killers.size() < kMaxKillers || killers.contains(node)) {
    killers[node] = now.mono;
  }
}

Strikes::News Strikes::NoteRan(const std::string& uid,
                               const std::set<NodeName>& nodes, Time now) {
  News news;
  const auto it = kills_.find(uid);
  if (it == kills_.end()) return news;
  std::erase_if(it->second, [&](const auto& kill) {
    const auto& [node, when] = kill;
    if (now.mono - when > options_.window) return true;
    if (nodes.contains(node)) return false;
    Strike(node, "ranks were killed there, and their job runs elsewhere", now,
           &news);
    return true;
  });
  if (it->second.empty()) kills_.erase(it);
  return news;
}

void Strikes::ForgetJob(const std::string& uid) {
  kills_.erase(uid);
  taken_.erase(uid);
}

bool Strikes::Clear(const NodeName& node) {
  const bool was = hosts_.erase(node) > 0;
  return std::erase_if(pairs_,
                       [&](const auto& entry) {
                         return entry.first.first == node ||
                                entry.first.second == node;
                       }) > 0 ||
         was;
}

bool Strikes::Mend(const NodeName& a, const NodeName& b, Time now) {
  const auto it = pairs_.find(a < b ? PairKey(a, b) : PairKey(b, a));
  if (it == pairs_.end() || !it->second.parted) return false;
  // The number of times is kept.
  it->second.parted = false;
  it->second.end = now.mono;
  return true;
}

std::set<NodeName> Strikes::Expire(Time now) {
  std::set<NodeName> changed;
  for (auto it = hosts_.begin(); it != hosts_.end();) {
    Host& host = it->second;
    if (host.cools && now.mono >= host.end) {
      host.cools = false;
      changed.insert(it->first);
    }
    const bool quiet = host.strikes.empty() ||
                       now.mono - host.strikes.back() > options_.window;
    const bool forgotten =
        !host.cools && quiet &&
        (host.times == 0 || now.mono - host.end > options_.longest);
    it = forgotten ? hosts_.erase(it) : std::next(it);
  }
  for (auto it = pairs_.begin(); it != pairs_.end();) {
    Pair& pair = it->second;
    if (pair.parted && now.mono >= pair.end) {
      pair.parted = false;
      changed.insert({it->first.first, it->first.second});
    }
    const bool forgotten =
        !pair.parted && now.mono - pair.end > options_.window;
    it = forgotten ? pairs_.erase(it) : std::next(it);
  }
  return changed;
}

const Strikes::CoolDown* Strikes::CoolingOf(const NodeName& node) const {
  const auto it = hosts_.find(node);
  return it == hosts_.end() || !it->second.cools ? nullptr
                                                 : &it->second.cooling;
}

std::vector<Strikes::Apart> Strikes::AllApart() const {
  std::vector<Apart> apart;
  for (const auto& [key, pair] : pairs_) {
    if (pair.parted) apart.push_back(pair.apart);
  }
  return apart;
}

std::vector<NodeName> Strikes::ApartFrom(const NodeName& node) const {
  std::vector<NodeName> others;
  for (const auto& [key, pair] : pairs_) {
    if (!pair.parted) continue;
    if (key.first == node) others.push_back(key.second);
    if (key.second == node) others.push_back(key.first);
  }
  return others;
}

}  // namespace lockstep::server
