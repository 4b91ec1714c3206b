#include "common/training/states.h"

#include <gtest/gtest.h>

namespace lockstep {
namespace {

using S = TrainingState;
using J = JobState;

TEST(TrainingStatesTest, EveryStateOfAJobHasOne) {
  struct Case {
    TrainingStateInput job;
    S want;
  };
  const Case cases[] = {
      {{J::kQueued, false, false, {}}, S::kQueued},
      {{J::kPlacing, false, false, {}}, S::kQueued},
      {{J::kPreparing, false, false, {}}, S::kPreparing},
      {{J::kForming, true, false, {}}, S::kPreparing},
      {{J::kRunning, true, true, {}}, S::kRunning},
      // Never back.
      {{J::kQueued, true, false, {}}, S::kPreparing},
      {{J::kQueued, true, true, {}}, S::kRunning},
      {{J::kPlacing, true, true, {}}, S::kRunning},
      {{J::kPreparing, true, true, {}}, S::kRunning},
      {{J::kForming, true, true, {}}, S::kRunning},
      // Ending.
      {{J::kFinishing, true, true, J::kSucceeded}, S::kRunning},
      {{J::kFinishing, true, true, J::kFailed}, S::kRunning},
      {{J::kFinishing, true, false, J::kFailed}, S::kPreparing},
      {{J::kFinishing, true, true, J::kCancelled}, S::kCancelling},
      {{J::kFinishing, false, false, J::kCancelled}, S::kCancelling},
      {{J::kSucceeded, true, true, J::kSucceeded}, S::kSucceeded},
      {{J::kFailed, true, true, J::kFailed}, S::kFailed},
      {{J::kCancelled, true, true, J::kCancelled}, S::kCancelled},
  };
  for (const Case& c : cases) {
    EXPECT_EQ(Name(TrainingStateOf(c.job)), Name(c.want))
        << Name(c.job.state) << " prepared " << c.job.has_prepared << " run "
        << c.job.has_run;
  }
}

TEST(TrainingStatesTest, NamesAreThoseOfTheInterface) {
  EXPECT_EQ(Name(S::kRunning), "RUNNING");
  EXPECT_EQ(Name(S::kCancelling), "CANCELLING");
  EXPECT_EQ(static_cast<int>(S::kCancelling), 6);
}

}  // namespace
}  // namespace lockstep
