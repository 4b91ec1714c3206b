// Makes a failing run small enough to read.
#ifndef LOCKSTEP_TESTS_SIMULATION_SHRINK_H_
#define LOCKSTEP_TESTS_SIMULATION_SHRINK_H_

#include <string>

#include "tests/simulation/world.h"

namespace lockstep::simulation {

// Leaves out moves while the same invariant is broken: halves, then smaller
// parts, then single ones (Zeller's ddmin). REQUIRES: Play(run) breaks one.
Trial Shrink(const Trial& run);

// The run as a story: its moves, and what followed from them.
std::string Tell(const Trial& run);

}  // namespace lockstep::simulation

#endif  // LOCKSTEP_TESTS_SIMULATION_SHRINK_H_
