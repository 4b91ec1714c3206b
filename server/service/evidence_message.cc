#include "server/service/evidence_message.h"

#include <fmt/format.h>
#include <google/protobuf/util/json_util.h>

#include <algorithm>
#include <set>
#include <utility>

#include "common/wire/evidence_wire.h"
#include "common/wire/value_wire.h"

namespace lockstep::server {
namespace {

// Of an answer; a message has at most 4 MiB.
constexpr size_t kMaxAnswer = 3 << 20;

void AddGroup(const StackGroup& group, v1::JobEvidence* to) {
  v1::StackGroup* const message = to->add_groups();
  message->mutable_ranks()->Add(group.ranks.begin(), group.ranks.end());
  message->set_where(Describe(group.position));
  message->set_collective(group.position.collective);
  message->set_odd(group.odd);
  for (const StackFrame& frame : group.position.frames) {
    WriteValue(frame, message->add_frames());
  }
}

// The ranks of odd groups come first where not all of them fit.
void AddRanks(const std::vector<RankEvidence>& ranks,
              const std::vector<StackGroup>& groups, v1::JobEvidence* to) {
  std::set<int32_t> odd;
  for (const StackGroup& group : groups) {
    if (group.odd) odd.insert(group.ranks.begin(), group.ranks.end());
  }
  size_t size = to->ByteSizeLong();
  size_t left_out = 0;
  for (const bool wanted : {true, false}) {
    for (const RankEvidence& rank : ranks) {
      if (odd.contains(rank.rank) != wanted) continue;
      v1::RankEvidence message = ToProto(rank);
      size += message.ByteSizeLong();
      if (size > kMaxAnswer) {
        ++left_out;
      } else {
        *to->add_ranks() = std::move(message);
      }
    }
  }
  std::sort(to->mutable_ranks()->begin(), to->mutable_ranks()->end(),
            [](const v1::RankEvidence& a, const v1::RankEvidence& b) {
              return a.rank() < b.rank();
            });
  if (left_out > 0) {
    to->add_notes(fmt::format(
        "the stacks of {} ranks are left out, which are in their groups",
        left_out));
  }
}

// When the kept evidence was captured.
WallTime LastTimeOf(const std::vector<RankEvidence>& ranks) {
  WallTime last{};
  for (const RankEvidence& rank : ranks) last = std::max(last, rank.time);
  return last;
}

}  // namespace

v1::JobEvidence EvidenceMessage(const FoundRanks& found,
                                const JudgedEvidence& judged,
                                const std::vector<std::string>& notes,
                                WallTime now) {
  v1::JobEvidence message;
  message.set_job(found.job);
  message.set_generation(found.generation);
  const bool kept = found.kept_for != Reason::kNone;
  WriteValue(kept ? LastTimeOf(judged.ranks) : now, message.mutable_time());
  message.set_trigger(kept ? std::string(Name(found.kept_for))
                           : std::string("by hand"));
  const HangVerdict& verdict = judged.verdict;
  message.set_verdict(verdict.sentence);
  message.mutable_cause_ranks()->Add(verdict.cause.begin(),
                                     verdict.cause.end());
  for (const std::string& text : verdict.differences) {
    message.add_differences(text);
  }
  for (const std::string& text : verdict.hints) message.add_hints(text);
  for (const std::string& note : notes) message.add_notes(note);
  for (const StackGroup& group : judged.groups) AddGroup(group, &message);
  AddRanks(judged.ranks, judged.groups, &message);
  return message;
}

std::string EvidenceJson(const FoundRanks& found, const JudgedEvidence& judged,
                         const std::vector<std::string>& notes, WallTime now) {
  google::protobuf::util::JsonPrintOptions options;
  options.add_whitespace = true;
  std::string json;
  // It has no Any, which alone could fail.
  const auto printed = google::protobuf::util::MessageToJsonString(
      EvidenceMessage(found, judged, notes, now), &json, options);
  return printed.ok() ? json : std::string(printed.message());
}

}  // namespace lockstep::server
