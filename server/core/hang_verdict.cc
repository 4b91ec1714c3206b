#include "server/core/hang_verdict.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string_view>
#include <utility>

#include "common/model/rank_list.h"
#include "common/model/resources.h"
#include "server/core/flight_verdict.h"

namespace lockstep::server {
namespace {

constexpr size_t kMaxNamedGroups = 3;
constexpr size_t kMaxDifferences = 12;

using Groups = std::vector<const StackGroup*>;

Groups With(const std::vector<StackGroup>& groups, RankActivity activity) {
  Groups found;
  for (const StackGroup& group : groups) {
    if (group.position.activity == activity) found.push_back(&group);
  }
  return found;
}

// Neither known to wait for others, nor unknown.
Groups Elsewhere(const std::vector<StackGroup>& groups) {
  Groups found;
  for (const StackGroup& group : groups) {
    if (group.position.activity != RankActivity::kInCollective &&
        group.position.activity != RankActivity::kUnknown) {
      found.push_back(&group);
    }
  }
  return found;
}

std::vector<int32_t> RanksOf(const Groups& groups) {
  std::vector<int32_t> ranks;
  for (const StackGroup* group : groups) {
    ranks.insert(ranks.end(), group->ranks.begin(), group->ranks.end());
  }
  std::sort(ranks.begin(), ranks.end());
  return ranks;
}

// Of several ranks: "wait in ...", "are stopped ...".
std::string Plural(std::string text) {
  static constexpr std::pair<std::string_view, std::string_view> kForms[] = {
      {"waits", "wait"}, {"is", "are"},  {"has", "have"},
      {"runs", "run"},   {"does", "do"},
  };
  for (const auto& [one, many] : kForms) {
    if (text.starts_with(one)) {
      return std::string(many) + text.substr(one.size());
    }
  }
  return text;
}

std::string GroupText(const StackGroup& group) {
  const std::string what = Describe(group.position);
  return RankList(group.ranks) + " " +
         (group.ranks.size() == 1 ? what : Plural(what));
}

// "rank 3 waits in f (a.py:1), rank 5 runs in g (a.py:9) and 2 other groups".
std::string GroupsText(const Groups& groups) {
  std::string text;
  for (size_t i = 0; i < groups.size() && i < kMaxNamedGroups; ++i) {
    if (i > 0) text += i + 1 == groups.size() ? " and " : ", ";
    text += GroupText(*groups[i]);
  }
  if (groups.size() > kMaxNamedGroups) {
    Groups rest(groups.begin() + kMaxNamedGroups, groups.end());
    text += fmt::format(" and {} do other things", RankList(RanksOf(rest)));
  }
  return text;
}

// "all_reduce", or "all_reduce and barrier".
std::string CollectivesText(const Groups& groups) {
  std::set<std::string> names;
  for (const StackGroup* group : groups) {
    names.insert(group->position.collective);
  }
  std::string text;
  for (const std::string& name : names) {
    text += (text.empty() ? "" : " and ") + name;
  }
  return text;
}

std::string CountOf(size_t ranks) {
  return ranks == 1 ? "1 rank waits" : fmt::format("{} ranks wait", ranks);
}

// "; 63 ranks wait for it in all_reduce", or nothing.
std::string WaitingText(const Groups& waiting, size_t causes) {
  if (waiting.empty()) return "";
  return fmt::format("; {} for {} in {}", CountOf(RanksOf(waiting).size()),
                     causes == 1 ? "it" : "them", CollectivesText(waiting));
}

// The calls in which ranks wait: the same function at different lines is not
// the same call.
std::map<std::string, std::vector<int32_t>> CallsOf(
    const std::vector<RankEvidence>& evidence) {
  std::map<std::string, std::vector<int32_t>> calls;
  for (const RankEvidence& rank : evidence) {
    const RankPosition position = PositionOf(rank);
    calls[position.place.empty()
              ? position.collective
              : fmt::format("{} ({})", position.collective, position.place)]
        .push_back(rank.rank);
  }
  return calls;
}

class Judge {
 public:
  Judge(const std::vector<RankEvidence>& evidence,
        const std::vector<StackGroup>& groups,
        const std::vector<int32_t>& missing)
      : evidence_(evidence),
        groups_(groups),
        missing_(missing),
        waiting_(With(groups, RankActivity::kInCollective)),
        elsewhere_(Elsewhere(groups)),
        unknown_(With(groups, RankActivity::kUnknown)) {}

  HangVerdict Run() {
    if (evidence_.empty()) {
      verdict_.sentence =
          "it cannot be known, because no rank could be looked at";
    } else if (!Certain(RankActivity::kStopped,
                        "continue it on its node: kill -CONT PID") &&
               !Certain(RankActivity::kGone,
                        "see the end of its log: lockstep jobs logs") &&
               !Recorded()) {
      Compare();
    }
    AddHints();
    verdict_.differences = DifferencesOf(evidence_);
    return std::move(verdict_);
  }

 private:
  // A state that is a cause whatever the others do.
  bool Certain(RankActivity activity, const char* hint) {
    const Groups found = With(groups_, activity);
    if (found.empty()) return false;
    // All of them: then they do not differ by it.
    if (RanksOf(found).size() == evidence_.size() && evidence_.size() > 1) {
      verdict_.sentence = GroupsText(found);
      verdict_.cause = RanksOf(found);
      return true;
    }
    verdict_.cause = RanksOf(found);
    verdict_.sentence =
        GroupsText(found) + WaitingText(waiting_, verdict_.cause.size());
    verdict_.hints.emplace_back(hint);
    return true;
  }

  // What the ranks have begun is more than where they are.
  bool Recorded() {
    const std::optional<FlightVerdict> flight =
        JudgeFlight(evidence_, missing_);
    if (!flight) return false;
    verdict_.cause = flight->cause;
    if (flight->cause.empty()) {
      verdict_.sentence = fmt::format(
          "it cannot be known which rank is wrong: {}", flight->what);
      return true;
    }
    verdict_.sentence =
        fmt::format("{} {}", RankList(flight->cause), flight->what);
    for (const StackGroup& group : groups_) {
      if (std::find(group.ranks.begin(), group.ranks.end(),
                    flight->cause.front()) == group.ranks.end()) {
        continue;
      }
      if (group.position.activity != RankActivity::kUnknown) {
        verdict_.sentence += "; it " + Describe(group.position);
      }
    }
    return true;
  }

  void Compare() {
    if (!missing_.empty() || !unknown_.empty()) return Incomplete();
    if (waiting_.empty()) return NoneWaits();
    if (elsewhere_.empty()) return AllWait();
    const std::vector<int32_t> ranks = RanksOf(elsewhere_);
    const size_t waiting = RanksOf(waiting_).size();
    verdict_.sentence =
        GroupsText(elsewhere_) + WaitingText(waiting_, ranks.size());
    // Most ranks are where they are in a step that goes well.
    if (ranks.size() <= waiting) verdict_.cause = ranks;
  }

  void Incomplete() {
    std::vector<int32_t> ranks = missing_;
    const std::vector<int32_t> unread = RanksOf(unknown_);
    ranks.insert(ranks.end(), unread.begin(), unread.end());
    std::sort(ranks.begin(), ranks.end());
    verdict_.sentence =
        fmt::format("it cannot be known, because {} could not be read{}",
                    RankList(ranks), WhyUnread());
    Groups known = elsewhere_;
    known.insert(known.end(), waiting_.begin(), waiting_.end());
    if (!known.empty()) verdict_.sentence += "; " + GroupsText(known);
  }

  // The first reason that a rank without a stack gives.
  std::string WhyUnread() const {
    for (const RankEvidence& rank : evidence_) {
      if (PositionOf(rank).activity != RankActivity::kUnknown) continue;
      for (const ProcessEvidence& process : rank.processes) {
        if (!process.stack_error.empty()) {
          return " (" + process.stack_error + ")";
        }
      }
    }
    return "";
  }

  void NoneWaits() {
    if (groups_.size() == 1) {
      verdict_.sentence = GroupText(groups_.front());
      if (evidence_.size() == 1) verdict_.cause = groups_.front().ranks;
      return;
    }
    verdict_.sentence = fmt::format(
        "it cannot be known, because no rank is in an operation of which "
        "lockstep knows that it waits for others; {}",
        GroupsText(elsewhere_));
  }

  void AllWait() {
    const auto calls = CallsOf(evidence_);
    if (calls.size() == 1) {
      verdict_.sentence = fmt::format(
          "it cannot be known, because {} in {}: an earlier call may be "
          "missing on one of them, or the network between them is at fault",
          evidence_.size() == 1
              ? "the only rank waits"
              : fmt::format("all {} ranks wait", evidence_.size()),
          calls.begin()->first);
      return;
    }
    std::string text;
    for (const auto& [call, ranks] : calls) {
      text += fmt::format("{}{} in {}", text.empty() ? "" : ", ",
                          RankList(ranks), call);
    }
    verdict_.sentence = fmt::format(
        "it cannot be known which rank is wrong, because all wait for others, "
        "but not in the same call: {}",
        text);
    verdict_.hints.emplace_back(
        "look for a collective operation that not every rank calls");
  }

  void AddHints() {
    for (const RankEvidence& rank : evidence_) {
      for (const ProcessEvidence& process : rank.processes) {
        if (process.stack_error.find("py-spy is not installed") ==
            std::string::npos) {
          continue;
        }
        verdict_.hints.push_back(fmt::format(
            "install py-spy on node {} (pip install py-spy): without it the "
            "functions of Python programs are not known",
            rank.node));
        return;
      }
    }
  }

  const std::vector<RankEvidence>& evidence_;
  const std::vector<StackGroup>& groups_;
  const std::vector<int32_t>& missing_;
  const Groups waiting_;
  const Groups elsewhere_;
  const Groups unknown_;
  HangVerdict verdict_;
};

// ---- Differences ------------------------------------------------------------

double Median(std::vector<double> values) {
  const auto middle =
      values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

double SwapOf(const RankEvidence& rank) {
  double bytes = 0;
  for (const ProcessEvidence& process : rank.processes) {
    bytes += static_cast<double>(process.swap_bytes);
  }
  return bytes;
}

std::string Bytes(double value) {
  return FormatBytes(static_cast<int64_t>(value));
}

// "gpu3.clock_sm" -> "clock_sm": other ranks have other GPUs.
std::string_view WithoutGpu(std::string_view name) {
  const size_t dot = name.find('.');
  return name.starts_with("gpu") && dot != name.npos ? name.substr(dot + 1)
                                                     : std::string_view();
}

struct ComparedReading {
  std::string_view name;
  std::string_view what;
  // Times the median, from which on it counts; below 1: at most that.
  double factor;
  double least;
};
constexpr ComparedReading kCompared[] = {
    {"cpu.some.avg10", "waited for a processor for {:.0f} % of the time", 2,
     10},
    {"memory.some.avg10", "waited for memory for {:.0f} % of the time", 2, 5},
    {"io.some.avg10", "waited for a disk for {:.0f} % of the time", 2, 10},
    {"clock_sm", "has a GPU at {:.0f} Hz", 0.8, 0},
    {"pcie_link_width", "has a GPU with {:.0f} PCIe lanes", 0.9, 0},
    {"temperature", "has a GPU at {:.0f} °C", 1.3, 80},
};

class Comparer {
 public:
  explicit Comparer(const std::vector<RankEvidence>& evidence)
      : evidence_(evidence) {}

  std::vector<std::string> Run() {
    for (const RankEvidence& rank : evidence_) AddFaults(rank);
    if (evidence_.size() > 1) {
      CompareSwap();
      for (const ComparedReading& reading : kCompared) Compare(reading);
    }
    if (found_.size() > kMaxDifferences) found_.resize(kMaxDifferences);
    return std::move(found_);
  }

 private:
  static std::string_view PlainName(std::string_view name) {
    const std::string_view of_gpu = WithoutGpu(name);
    return of_gpu.empty() ? name : of_gpu;
  }

  void AddFaults(const RankEvidence& rank) {
    for (const auto& [name, value] : rank.readings) {
      if (WithoutGpu(name) != "xid") continue;
      found_.push_back(
          fmt::format("rank {}: GPU {} of {} reported Xid {:.0f}", rank.rank,
                      name.substr(3, name.find('.') - 3), rank.node, value));
    }
  }

  void CompareSwap() {
    std::vector<double> values;
    for (const RankEvidence& rank : evidence_) values.push_back(SwapOf(rank));
    const double median = Median(values);
    constexpr double kMiB = 1 << 20;
    for (size_t i = 0; i < values.size(); ++i) {
      if (values[i] < 16 * kMiB || values[i] < 2 * median) continue;
      found_.push_back(fmt::format("rank {} has {} in swap; the median is {}",
                                   evidence_[i].rank, Bytes(values[i]),
                                   Bytes(median)));
    }
  }

  void Compare(const ComparedReading& reading) {
    std::vector<std::pair<int32_t, double>> values;
    std::vector<double> plain;
    for (const RankEvidence& rank : evidence_) {
      for (const auto& [name, value] : rank.readings) {
        if (PlainName(name) != reading.name) continue;
        values.emplace_back(rank.rank, value);
        plain.push_back(value);
      }
    }
    if (values.size() < 2) return;
    const double median = Median(plain);
    for (const auto& [rank, value] : values) {
      const bool far = reading.factor < 1 ? value <= reading.factor * median
                                          : value >= reading.factor * median;
      if (!far || value < reading.least || value == median) continue;
      found_.push_back(
          fmt::format("rank {} {}; the median is {:.0f}", rank,
                      fmt::format(fmt::runtime(reading.what), value), median));
    }
  }

  const std::vector<RankEvidence>& evidence_;
  std::vector<std::string> found_;
};

}  // namespace

std::vector<std::string> DifferencesOf(
    const std::vector<RankEvidence>& evidence) {
  return Comparer(evidence).Run();
}

HangVerdict JudgeHang(const std::vector<RankEvidence>& evidence,
                      const std::vector<StackGroup>& groups,
                      const std::vector<int32_t>& missing) {
  return Judge(evidence, groups, missing).Run();
}

}  // namespace lockstep::server
