// Ranks and tasks: how far they are, what they use, how they ended.
#include "common/wire/fields.h"
#include "common/wire/value_wire.h"

namespace lockstep {
namespace {

constexpr auto kSeconds = Number(0, 1e12);
constexpr auto kFigure = Number(-kHugeFigure, kHugeFigure);
constexpr auto kExact = Range(0, kMaxExact);

}  // namespace

LOCKSTEP_FIELDS(PhaseSeconds, v1::PhaseSeconds) {
  LOCKSTEP_FIELD(input, kSeconds);
  LOCKSTEP_FIELD(compute, kSeconds);
  LOCKSTEP_FIELD(allreduce, kSeconds);
  LOCKSTEP_FIELD(straggler_wait, kSeconds);
  LOCKSTEP_FIELD(optimizer, kSeconds);
  LOCKSTEP_FIELD(checkpoint, kSeconds);
  LOCKSTEP_FIELD(evaluation, kSeconds);
  LOCKSTEP_FIELD(other, kSeconds);
  LOCKSTEP_FIELD(compile, kSeconds);
}

LOCKSTEP_FIELDS(Straggler, v1::Straggler) {
  LOCKSTEP_FIELD(rank, kRank);
  LOCKSTEP_FIELD(steps, Range(1, 100));
  LOCKSTEP_FIELD(late_steps);
  LOCKSTEP_FIELD(cost, Number(0, 1));
  v.Rule([](Straggler* straggler, FieldChecker* check) {
    check->Range("late_steps", straggler->late_steps, 0, straggler->steps);
  });
}

LOCKSTEP_FIELDS(ProgressSigns, v1::ProgressSigns) {
  LOCKSTEP_FIELD(source);
  LOCKSTEP_FIELD(still);
  LOCKSTEP_FIELD(usual);
  LOCKSTEP_FIELD(limit);
  LOCKSTEP_FIELD(log_step, kExact);
  LOCKSTEP_FIELD(log_total, kExact);
}

LOCKSTEP_FIELDS(CollectiveWait, v1::CollectiveWait) {
  LOCKSTEP_FIELD(responsive);
  LOCKSTEP_FIELD(waiting);
  LOCKSTEP_FIELD(peer, kRank);
  LOCKSTEP_FIELD(waits, kCounter);
}

LOCKSTEP_FIELDS(RankProgress, v1::RankProgress) {
  LOCKSTEP_FIELD(step, Range(-1, kMaxExact));
  LOCKSTEP_FIELD(committed_step, Range(-1, kMaxExact));
  LOCKSTEP_FIELD(total_steps, kExact);
  LOCKSTEP_FIELD(epoch, Number(0, 1e15));
  LOCKSTEP_FIELD(samples, kCounter);
  LOCKSTEP_FIELD(loss, kFigure);
  LOCKSTEP_FIELD(learning_rate, kFigure);
  LOCKSTEP_FIELD(phases);
  LOCKSTEP_FIELD(allreduce_bytes, kCounter);
  LOCKSTEP_FIELD(collectives, kCounter);
  LOCKSTEP_FIELD(skipped_steps, kExact);
  LOCKSTEP_FIELD(checkpoints, kExact);
  LOCKSTEP_FIELD(values, AtMost(64), Entries(Text(64), kFigure));
  LOCKSTEP_FIELD(phase, Text(32));
  LOCKSTEP_FIELD(straggler);
  LOCKSTEP_FIELD(allreduce_busy_seconds, kSeconds);
  LOCKSTEP_FIELD(signs);
  LOCKSTEP_FIELD(change_time);
  LOCKSTEP_FIELD(collective_wait);
}

LOCKSTEP_FIELDS(Usage, v1::Usage) {
  LOCKSTEP_FIELD(cpu_seconds, kSeconds);
  LOCKSTEP_FIELD(memory_bytes, kCounter);
  LOCKSTEP_FIELD(memory_peak_bytes, kCounter);
  LOCKSTEP_FIELD(gpu_utilization, Number(0, 1));
  LOCKSTEP_FIELD(seconds, kSeconds);
  LOCKSTEP_FIELD(cpu_peak_cores, kSeconds);
  LOCKSTEP_FIELD(gpu_utilization_peak, Number(0, 1));
  LOCKSTEP_FIELD(gpu_memory_peak_bytes, kCounter);
  LOCKSTEP_FIELD(network_sent_bytes, kCounter);
  LOCKSTEP_FIELD(network_received_bytes, kCounter);
  LOCKSTEP_FIELD(disk_bytes, kCounter);
  LOCKSTEP_FIELD(log_bytes, kCounter);
}

LOCKSTEP_FIELDS(RankStatus, v1::RankStatus) {
  LOCKSTEP_FIELD(rank, kRank);
  LOCKSTEP_FIELD(local_rank, kRank);
  LOCKSTEP_FIELD(state);
  LOCKSTEP_FIELD(pid, Range(0, INT32_MAX));
  LOCKSTEP_FIELD(exit);
  LOCKSTEP_FIELD(progress);
  LOCKSTEP_FIELD(usage);
  LOCKSTEP_FIELD(restarts, kCounter);
  LOCKSTEP_FIELD(recoverable);
  LOCKSTEP_FIELD(recovery);
  LOCKSTEP_FIELD(parked);
  LOCKSTEP_FIELD(elastic);
  LOCKSTEP_FIELD(away);
  LOCKSTEP_FIELD(returned);
  v.Rule([](RankStatus* rank, FieldChecker* check) {
    if (rank->state == RankState::kExited && !rank->exit) {
      check->Fail("exit", "is missing of a rank that has exited");
    }
  });
}

LOCKSTEP_FIELDS(TaskStatus, v1::TaskStatus) {
  LOCKSTEP_FIELD(type);
  LOCKSTEP_FIELD(index, kRank);
  LOCKSTEP_FIELD(node, EmptyOr(kNodeName));
  LOCKSTEP_FIELD(address, Text(300));
  LOCKSTEP_FIELD(gpus, AtMost(4096));
  LOCKSTEP_FIELD(ranks, AtMost(kMaxRanks));
  LOCKSTEP_FIELD(preparation, OmitDefault());
  LOCKSTEP_FIELD(work);
  LOCKSTEP_FIELD(former_nodes, AtMost(kMaxFormerNodes));
}

}  // namespace lockstep
