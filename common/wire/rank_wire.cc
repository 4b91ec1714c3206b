// Ranks and tasks: how far they are, what they use, how they ended.
#include "common/wire/field_checker.h"
#include "common/wire/fill_repeated.h"
#include "common/wire/value_wire.h"

namespace lockstep {
namespace {

constexpr double kMaxSeconds = 1e12;

}  // namespace

v1::PhaseSeconds ToProto(const PhaseSeconds& value) {
  v1::PhaseSeconds out;
  out.set_input(value.input);
  out.set_compute(value.compute);
  out.set_allreduce(value.allreduce);
  out.set_straggler_wait(value.straggler_wait);
  out.set_optimizer(value.optimizer);
  out.set_checkpoint(value.checkpoint);
  out.set_evaluation(value.evaluation);
  out.set_other(value.other);
  return out;
}

StatusOr<PhaseSeconds> FromProto(const v1::PhaseSeconds& value,
                                 std::string_view path) {
  FieldChecker check(path);
  check.Number("input", value.input(), 0, kMaxSeconds);
  check.Number("compute", value.compute(), 0, kMaxSeconds);
  check.Number("allreduce", value.allreduce(), 0, kMaxSeconds);
  check.Number("straggler_wait", value.straggler_wait(), 0, kMaxSeconds);
  check.Number("optimizer", value.optimizer(), 0, kMaxSeconds);
  check.Number("checkpoint", value.checkpoint(), 0, kMaxSeconds);
  check.Number("evaluation", value.evaluation(), 0, kMaxSeconds);
  check.Number("other", value.other(), 0, kMaxSeconds);
  if (!check.ok()) return check.status();
  return PhaseSeconds{value.input(),      value.compute(),
                      value.allreduce(),  value.straggler_wait(),
                      value.optimizer(),  value.checkpoint(),
                      value.evaluation(), value.other()};
}

v1::Straggler ToProto(const Straggler& value) {
  v1::Straggler out;
  out.set_rank(value.rank);
  out.set_steps(value.steps);
  out.set_late_steps(value.late_steps);
  out.set_cost(value.cost);
  return out;
}

StatusOr<Straggler> FromProto(const v1::Straggler& value,
                              std::string_view path) {
  FieldChecker check(path);
  check.Range("rank", value.rank(), 0, kMaxRanks - 1);
  check.Range("steps", value.steps(), 1, 100);
  check.Range("late_steps", value.late_steps(), 0, value.steps());
  check.Number("cost", value.cost(), 0, 1);
  if (!check.ok()) return check.status();
  return Straggler{value.rank(), value.steps(), value.late_steps(),
                   value.cost()};
}

v1::RankProgress ToProto(const RankProgress& value) {
  v1::RankProgress out;
  out.set_step(value.step);
  out.set_committed_step(value.committed_step);
  out.set_total_steps(value.total_steps);
  out.set_epoch(value.epoch);
  out.set_samples(value.samples);
  out.set_loss(value.loss);
  out.set_learning_rate(value.learning_rate);
  *out.mutable_phases() = ToProto(value.phases);
  out.set_allreduce_bytes(value.allreduce_bytes);
  out.set_collectives(value.collectives);
  out.set_skipped_steps(value.skipped_steps);
  out.set_checkpoints(value.checkpoints);
  out.mutable_values()->insert(value.values.begin(), value.values.end());
  out.set_phase(value.phase);
  if (value.straggler) *out.mutable_straggler() = ToProto(*value.straggler);
  out.set_allreduce_busy_seconds(value.allreduce_busy_seconds);
  return out;
}

StatusOr<RankProgress> FromProto(const v1::RankProgress& value,
                                 std::string_view path) {
  FieldChecker check(path);
  RankProgress out;
  check.Range("step", value.step(), -1, kMaxExact);
  check.Range("committed_step", value.committed_step(), -1, kMaxExact);
  check.Range("total_steps", value.total_steps(), 0, kMaxExact);
  check.Number("epoch", value.epoch(), 0, 1e15);
  check.Range("samples", value.samples(), 0, INT64_MAX);
  check.Number("loss", value.loss(), -kHugeFigure, kHugeFigure);
  check.Number("learning_rate", value.learning_rate(), -kHugeFigure,
               kHugeFigure);
  check.Take(FromProto(value.phases(), check.At("phases")), &out.phases);
  check.Range("allreduce_bytes", value.allreduce_bytes(), 0, INT64_MAX);
  check.Range("collectives", value.collectives(), 0, INT64_MAX);
  check.Range("skipped_steps", value.skipped_steps(), 0, kMaxExact);
  check.Range("checkpoints", value.checkpoints(), 0, kMaxExact);
  check.Count("values", value.values_size(), 64);
  for (const auto& [name, number] : value.values()) {
    check.Text("values", name, 64);
    check.Number("values", number, -kHugeFigure, kHugeFigure);
  }
  check.Text("phase", value.phase(), 32);
  if (value.has_straggler()) {
    check.Take(FromProto(value.straggler(), check.At("straggler")),
               &out.straggler.emplace());
  }
  check.Number("allreduce_busy_seconds", value.allreduce_busy_seconds(), 0,
               kMaxSeconds);
  if (!check.ok()) return check.status();
  out.step = value.step();
  out.committed_step = value.committed_step();
  out.total_steps = value.total_steps();
  out.epoch = value.epoch();
  out.samples = value.samples();
  out.loss = value.loss();
  out.learning_rate = value.learning_rate();
  out.allreduce_bytes = value.allreduce_bytes();
  out.collectives = value.collectives();
  out.skipped_steps = value.skipped_steps();
  out.checkpoints = value.checkpoints();
  out.values = {value.values().begin(), value.values().end()};
  out.phase = value.phase();
  out.allreduce_busy_seconds = value.allreduce_busy_seconds();
  return out;
}

v1::Usage ToProto(const Usage& value) {
  v1::Usage out;
  out.set_cpu_seconds(value.cpu_seconds);
  out.set_memory_bytes(value.memory_bytes);
  out.set_memory_peak_bytes(value.memory_peak_bytes);
  if (value.gpu_utilization) out.set_gpu_utilization(*value.gpu_utilization);
  if (value.cpu_peak_cores) out.set_cpu_peak_cores(*value.cpu_peak_cores);
  if (value.gpu_utilization_peak) {
    out.set_gpu_utilization_peak(*value.gpu_utilization_peak);
  }
  if (value.gpu_memory_peak_bytes) {
    out.set_gpu_memory_peak_bytes(*value.gpu_memory_peak_bytes);
  }
  out.set_seconds(value.seconds);
  return out;
}

StatusOr<Usage> FromProto(const v1::Usage& value, std::string_view path) {
  FieldChecker check(path);
  check.Number("cpu_seconds", value.cpu_seconds(), 0, kMaxSeconds);
  check.Range("memory_bytes", value.memory_bytes(), 0, INT64_MAX);
  check.Range("memory_peak_bytes", value.memory_peak_bytes(), 0, INT64_MAX);
  check.Number("gpu_utilization", value.gpu_utilization(), 0, 1);
  check.Number("seconds", value.seconds(), 0, kMaxSeconds);
  check.Number("cpu_peak_cores", value.cpu_peak_cores(), 0, kMaxSeconds);
  check.Number("gpu_utilization_peak", value.gpu_utilization_peak(), 0, 1);
  check.Range("gpu_memory_peak_bytes", value.gpu_memory_peak_bytes(), 0,
              INT64_MAX);
  if (!check.ok()) return check.status();
  Usage out;
  out.cpu_seconds = value.cpu_seconds();
  out.memory_bytes = value.memory_bytes();
  out.memory_peak_bytes = value.memory_peak_bytes();
  out.seconds = value.seconds();
  if (value.has_cpu_peak_cores()) out.cpu_peak_cores = value.cpu_peak_cores();
  if (value.has_gpu_utilization_peak()) {
    out.gpu_utilization_peak = value.gpu_utilization_peak();
  }
  if (value.has_gpu_memory_peak_bytes()) {
    out.gpu_memory_peak_bytes = value.gpu_memory_peak_bytes();
  }
  if (value.has_gpu_utilization()) {
    out.gpu_utilization = value.gpu_utilization();
  }
  return out;
}

v1::RankStatus ToProto(const RankStatus& value) {
  v1::RankStatus out;
  out.set_rank(value.rank);
  out.set_local_rank(value.local_rank);
  out.set_state(ToProto(value.state));
  out.set_pid(value.pid);
  if (value.exit) *out.mutable_exit() = ToProto(*value.exit);
  *out.mutable_progress() = ToProto(value.progress);
  *out.mutable_usage() = ToProto(value.usage);
  out.set_restarts(value.restarts);
  return out;
}

StatusOr<RankStatus> FromProto(const v1::RankStatus& value,
                               std::string_view path) {
  FieldChecker check(path);
  RankStatus out;
  check.Range("rank", value.rank(), 0, kMaxRanks - 1);
  check.Range("local_rank", value.local_rank(), 0, kMaxRanks - 1);
  check.Take(FromProto(value.state(), check.At("state")), &out.state);
  check.Range("pid", value.pid(), 0, INT32_MAX);
  if (value.has_exit()) {
    check.Take(FromProto(value.exit(), check.At("exit")), &out.exit.emplace());
  }
  if (!value.has_exit() && value.state() == v1::RANK_STATE_EXITED) {
    check.Fail("exit", "is missing of a rank that has exited");
  }
  if (value.has_progress()) {
    check.Take(FromProto(value.progress(), check.At("progress")),
               &out.progress);
  }
  check.Take(FromProto(value.usage(), check.At("usage")), &out.usage);
  check.Range("restarts", value.restarts(), 0, INT32_MAX);
  if (!check.ok()) return check.status();
  out.restarts = value.restarts();
  out.rank = value.rank();
  out.local_rank = value.local_rank();
  out.pid = value.pid();
  return out;
}

v1::TaskStatus ToProto(const TaskStatus& value) {
  v1::TaskStatus out;
  out.set_type(ToProto(value.type));
  out.set_index(value.index);
  out.set_node(value.node);
  out.set_address(value.address);
  for (const int32_t gpu : value.gpus) out.add_gpus(gpu);
  FillRepeated(value.ranks, out.mutable_ranks());
  if (value.preparation != TaskPreparation()) {
    *out.mutable_preparation() = ToProto(value.preparation);
  }
  if (value.work) *out.mutable_work() = ToProto(*value.work);
  return out;
}

StatusOr<TaskStatus> FromProto(const v1::TaskStatus& value,
                               std::string_view path) {
  FieldChecker check(path);
  TaskStatus out;
  check.Take(FromProto(value.type(), check.At("type")), &out.type);
  check.Range("index", value.index(), 0, kMaxRanks - 1);
  if (!value.node().empty()) check.NodeName("node", value.node());
  check.Text("address", value.address(), 300);
  check.Count("gpus", value.gpus_size(), 4096);
  check.Count("ranks", value.ranks_size(), kMaxRanks);
  for (int i = 0; check.ok() && i < value.ranks_size(); ++i) {
    check.Take(FromProto(value.ranks(i), check.At("ranks", i)),
               &out.ranks.emplace_back());
  }
  check.Take(FromProto(value.preparation(), check.At("preparation")),
             &out.preparation);
  if (value.has_work()) {
    check.Take(FromProto(value.work(), check.At("work")), &out.work.emplace());
  }
  if (!check.ok()) return check.status();
  out.index = value.index();
  out.node = value.node();
  out.address = value.address();
  out.gpus = {value.gpus().begin(), value.gpus().end()};
  return out;
}

}  // namespace lockstep
