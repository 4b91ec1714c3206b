#include "worker/checkpoint/vote.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <vector>

#include "worker/checkpoint/sealed_json.h"

namespace lockstep::worker::checkpoint {
namespace {

// "rank 3", "ranks 1, 2 and 5", "ranks 1, 2, 3, 4 and 60 more".
std::string RankList(const std::vector<uint32_t>& ranks) {
  constexpr size_t kShown = 8;
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (size_t i = 0; i < ranks.size() && i < kShown; ++i) {
    const bool last = i + 1 == ranks.size();
    if (i > 0) text += last ? " and " : ", ";
    text += fmt::format("{}", ranks[i]);
  }
  if (ranks.size() > kShown) {
    text += fmt::format(" and {} more", ranks.size() - kShown);
  }
  return text;
}

Status CheckHashes(int64_t step, std::span<const Vote> votes) {
  std::map<uint64_t, std::vector<uint32_t>> by_hash;
  for (const Vote& vote : votes) by_hash[vote.state_hash].push_back(vote.rank);
  if (by_hash.size() == 1) return OkStatus();
  const auto agreed = std::max_element(
      by_hash.begin(), by_hash.end(), [](const auto& a, const auto& b) {
        const auto weight = [](const std::vector<uint32_t>& ranks) {
          const bool has_0 =
              std::find(ranks.begin(), ranks.end(), 0u) != ranks.end();
          return std::pair(ranks.size(), has_0);
        };
        return weight(a.second) < weight(b.second);
      });
  std::vector<uint32_t> differ;
  uint64_t other = 0;
  for (const auto& [hash, ranks] : by_hash) {
    if (hash == agreed->first) continue;
    differ.insert(differ.end(), ranks.begin(), ranks.end());
    other = hash;
  }
  std::sort(differ.begin(), differ.end());
  return FailedPrecondition(
      "replicas diverged at step {}: {} of {} have other parameters (state "
      "hash {}) than the rest ({}); restore from an earlier checkpoint",
      step, RankList(differ), votes.size(),
      by_hash.size() == 2 ? Hex64(other) : std::string("several"),
      Hex64(agreed->first));
}

}  // namespace

std::string EncodeVote(const Vote& vote) {
  nlohmann::ordered_json out;
  out["generation"] = vote.attempt.generation;
  out["step"] = vote.attempt.step;
  out["id"] = vote.attempt.id;
  out["rank"] = vote.rank;
  out["world_size"] = vote.world_size;
  out["epoch"] = vote.cursor.epoch;
  out["position"] = vote.cursor.position;
  out["state_hash"] = Hex64(vote.state_hash);
  PutSums(vote.shard, &out);
  // Numbers and hexadecimal only: Seal has nothing to refuse.
  return Seal(out).value();
}

StatusOr<Vote> DecodeVote(std::string_view text) {
  LOCKSTEP_ASSIGN_OR_RETURN(const nlohmann::json in, Unseal(text, "the vote"));
  FieldReader reader(in);
  Vote vote;
  vote.attempt.generation = reader.Unsigned("generation");
  vote.attempt.step = reader.Step("step");
  vote.attempt.id = reader.Unsigned("id");
  vote.rank = static_cast<uint32_t>(reader.Unsigned("rank", kMaxWorldSize - 1));
  vote.world_size =
      static_cast<uint32_t>(reader.Unsigned("world_size", kMaxWorldSize));
  vote.cursor = {reader.Unsigned("epoch"), reader.Unsigned("position")};
  vote.state_hash = reader.Hex64("state_hash");
  vote.shard = reader.Sums();
  LOCKSTEP_RETURN_IF_ERROR(Annotate(reader.status(), "the vote"));
  return vote;
}

Status CheckVotes(const AttemptKey& attempt, uint32_t world_size,
                  std::span<const Vote> votes) {
  if (world_size == 0 || world_size > kMaxWorldSize) {
    return InvalidArgument("world size {}: want 1 to {}", world_size,
                           kMaxWorldSize);
  }
  std::vector<bool> voted(world_size, false);
  for (const Vote& vote : votes) {
    if (vote.attempt != attempt || vote.world_size != world_size) {
      return FailedPrecondition(
          "rank {} voted for {} with {} ranks, but the vote is for {} with {}",
          vote.rank, StagingName(vote.attempt), vote.world_size,
          StagingName(attempt), world_size);
    }
    if (vote.rank >= world_size || voted[vote.rank]) {
      return FailedPrecondition("rank {} of {} voted twice or does not exist",
                                vote.rank, world_size);
    }
    voted[vote.rank] = true;
    if (vote.cursor != votes.front().cursor) {
      return FailedPrecondition(
          "rank {} is at epoch {} position {} after step {}, rank {} at epoch "
          "{} position {}",
          vote.rank, vote.cursor.epoch, vote.cursor.position, attempt.step,
          votes.front().rank, votes.front().cursor.epoch,
          votes.front().cursor.position);
    }
  }
  std::vector<uint32_t> missing;
  for (uint32_t rank = 0; rank < world_size; ++rank) {
    if (!voted[rank]) missing.push_back(rank);
  }
  if (!missing.empty()) {
    return FailedPrecondition(
        "checkpoint of step {}: the votes of {} are missing", attempt.step,
        RankList(missing));
  }
  return CheckHashes(attempt.step, votes);
}

}  // namespace lockstep::worker::checkpoint
