// A rank's VOTE: as it is, and with its checksum put right.
#include "worker/checkpoint/vote.h"

#include "tests/fuzz/fuzz.h"

namespace lockstep::worker {
namespace {

void CheckVote(std::string_view text) {
  const auto vote = checkpoint::DecodeVote(text);
  if (!vote.ok()) return;
  const auto again = checkpoint::DecodeVote(checkpoint::EncodeVote(*vote));
  fuzz::Require(again.ok() && *again == *vote, "a vote is read as written");
  (void)checkpoint::CheckVotes(vote->attempt, vote->world_size, {&*vote, 1});
}

}  // namespace
}  // namespace lockstep::worker

LOCKSTEP_FUZZ_TARGET(vote)(const uint8_t* data, size_t size) {
  const std::string_view bytes = lockstep::fuzz::View(data, size);
  lockstep::worker::CheckVote(bytes);
  lockstep::worker::CheckVote(lockstep::fuzz::SealText(bytes));
  return 0;
}
