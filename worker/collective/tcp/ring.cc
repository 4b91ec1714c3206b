#include "worker/collective/tcp/ring.h"

#include <algorithm>

namespace lockstep::worker::collective::tcp {
namespace {

// Elements.
constexpr size_t kAlign = 16;

}  // namespace

RingCursor::RingCursor(size_t segments, size_t steps, size_t ahead)
    : segments_(segments),
      steps_(steps),
      ahead_(ahead),
      slots_(segments == 0 || steps == 0 ? 0 : segments + ahead * (steps - 1)) {
}

void RingCursor::Next() {
  ++step_;
  if (step_ < steps_ && ahead_ * step_ <= slot_) return;
  ++slot_;
  EnterSlot();
}

// The first step of a slot is that of its last segment. A slot may have none.
void RingCursor::EnterSlot() {
  for (; slot_ < slots_; ++slot_) {
    const size_t before = slot_ < segments_ ? 0 : slot_ - segments_ + 1;
    step_ = (before + ahead_ - 1) / ahead_;
    if (step_ < steps_ && ahead_ * step_ <= slot_) return;
  }
}

size_t PiecesFor(size_t count, size_t most) {
  const size_t lines = (count + kAlign - 1) / kAlign;
  const size_t most_lines = most / kAlign;
  return std::max<size_t>(1, (lines + most_lines - 1) / most_lines);
}

Range PieceOf(Range range, size_t pieces, size_t index) {
  const size_t count = range.end - range.begin;
  const size_t lines = (count + kAlign - 1) / kAlign;
  const auto at = [&](size_t i) {
    // Without overflow for any count.
    const size_t line = lines / pieces * i + lines % pieces * i / pieces;
    return range.begin + std::min(count, line * kAlign);
  };
  return {at(index), at(index + 1)};
}

}  // namespace lockstep::worker::collective::tcp
