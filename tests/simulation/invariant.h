// What is true at all times, however wrong the timers are.
#ifndef LOCKSTEP_TESTS_SIMULATION_INVARIANT_H_
#define LOCKSTEP_TESTS_SIMULATION_INVARIANT_H_

#include <string>
#include <string_view>

#include "common/base/clock.h"

namespace lockstep::simulation {

enum class Invariant {
  kNone,
  // A final step is never undone, except by a restore that the job's lineage
  // records. A checkpoint has only steps that every rank holds.
  kS1,
  // Replicas that committed the same step are equal.
  kS2,
  // Along the lineage each step is applied once, their numbers rise by one, and
  // a job that succeeds has applied all.
  kS3,
  // Along the lineage each sample is used once: a rank that is away uses none,
  // because the others use its samples.
  kS4,
  // A command that was acknowledged is durable and takes effect once; an ended
  // job stays as it ended.
  kS5,
  // A checkpoint that is listed is whole, and restores the state of its step.
  kS6,
  // Never two processes of one rank, nor two generations of one job, nor a
  // process that no shim reaps or that its daemon only imagines; no resource
  // is given twice.
  kS7,
  // Never two cluster specs or two sets of members of one communicator (a
  // generation and a recovery), none with fewer tasks than its job wants, never
  // a generation's number twice, and none is heard of before it is stored.
  kS8,
  // Every request gets an answer, every waiter its value, and once all is well
  // every job an end and every rank that is away and ready its place.
  kS9,
  // Nobody changes anything without the right to: no stranger, no ended
  // stream, no coordinator that the node does not follow. (Who a caller is,
  // gRPC and its certificates say.)
  kS10,
};

std::string_view Name(Invariant invariant);  // "S7"

struct Violation {
  Invariant invariant = Invariant::kNone;
  std::string sentence;
  Duration at{};
};

}  // namespace lockstep::simulation

#endif  // LOCKSTEP_TESTS_SIMULATION_INVARIANT_H_
