#include "tests/simulation/shrink.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

namespace lockstep::simulation {
namespace {

// With fewer moves it may take longer.
constexpr Duration kLater = std::chrono::seconds(20);

// The moves without those of the part `index` of `parts`.
std::vector<Move> Without(const std::vector<Move>& moves, size_t index,
                          size_t parts) {
  const size_t from = moves.size() * index / parts;
  const size_t to = moves.size() * (index + 1) / parts;
  std::vector<Move> kept;
  for (size_t i = 0; i < moves.size(); ++i) {
    if (i < from || i >= to) kept.push_back(moves[i]);
  }
  return kept;
}

}  // namespace

Trial Shrink(const Trial& run) {
  const Outcome first = Play(run);
  const Invariant broken = first.violation->invariant;
  Trial best = run;
  // What is left out must not make the trouble end earlier.
  best.heal_at = first.healed;
  if (first.violation->at < first.healed) {
    best.stop_at = first.violation->at + kLater;
  }
  std::erase_if(best.moves, [&](const Move& move) {
    return move.at > first.violation->at;
  });
  const auto fails = [&](const std::vector<Move>& moves) {
    Trial smaller = best;
    smaller.moves = moves;
    const Outcome outcome = Play(smaller);
    return outcome.violation && outcome.violation->invariant == broken;
  };
  if (!fails(best.moves)) return run;
  size_t parts = 2;
  while (!best.moves.empty() && parts <= best.moves.size()) {
    bool less = false;
    for (size_t i = 0; i < parts && !less; ++i) {
      std::vector<Move> moves = Without(best.moves, i, parts);
      if (!fails(moves)) continue;
      best.moves = std::move(moves);
      less = true;
    }
    if (less) {
      parts = std::max<size_t>(2, parts - 1);
    } else if (parts == best.moves.size()) {
      break;
    } else {
      parts = std::min(best.moves.size(), parts * 2);
    }
  }
  return best;
}

std::string Tell(const Trial& run) {
  const Outcome outcome = Play(run, /*tell=*/true);
  return fmt::format("seed {}: {} nodes, {} moves, {} events\n{}\n",
                     run.plan.seed, run.plan.nodes, run.moves.size(),
                     outcome.events, fmt::join(outcome.story, "\n"));
}

}  // namespace lockstep::simulation
