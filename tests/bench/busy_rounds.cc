#include "tests/bench/busy_rounds.h"

namespace lockstep {

BusyRounds::Next BusyRounds::Judge(const CpuShares& shares, bool dropped) {
  if (dropped || !IsBusy(shares)) return Next::kKeep;
  const int most = on_busy_ == OnBusy::kTake     ? 0
                   : on_busy_ == OnBusy::kRepeat ? rounds_
                                                 : rounds_ / 2;
  if (repeated_ < most) {
    ++repeated_;
    return Next::kRepeat;
  }
  if (on_busy_ == OnBusy::kRepeat) return Next::kGiveUp;
  ++kept_busy_;
  return Next::kKeep;
}

}  // namespace lockstep
