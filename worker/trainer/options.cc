#include "worker/trainer/options.h"

#include <fmt/format.h>

#include <cmath>
#include <iostream>

#include "common/base/version.h"
#include "common/cli/command.h"
#include "worker/collective/removed_backend.h"

namespace lockstep::worker::trainer {
namespace {

Status CheckChoice(const char* flag, const std::string& value,
                   std::initializer_list<const char*> choices) {
  std::string list;
  for (const char* choice : choices) {
    if (value == choice) return OkStatus();
    list += list.empty() ? choice : fmt::format(" or {}", choice);
  }
  return InvalidArgument("{} is '{}', but must be {}", flag, value, list);
}

Status CheckRange(const char* flag, int64_t value, int64_t min, int64_t max) {
  if (value >= min && value <= max) return OkStatus();
  return InvalidArgument("{} is {}, but must be from {} to {}", flag, value,
                         min, max);
}

Status CheckNumber(const char* flag, double value, double min, double max) {
  if (std::isfinite(value) && value >= min && value <= max) return OkStatus();
  return InvalidArgument("{} is {}, but must be from {} to {}", flag, value,
                         min, max);
}

Status CheckFaults(const FaultOptions& faults) {
  const bool any = faults.fail_at_step != 0 || faults.kill_at_step != 0 ||
                   faults.nan_at_step != 0 || faults.step_delay != Duration() ||
                   !faults.points.empty();
  if (any && !faults.allowed) {
    return InvalidArgument(
        "--fail-at-step, --kill-at-step, --nan-at-step, --step-delay-ms and "
        "--faults inject failures: they need --allow-faults");
  }
  for (int64_t step :
       {faults.fail_at_step, faults.kill_at_step, faults.nan_at_step}) {
    if (step < 0)
      return InvalidArgument("steps of injected faults count from 1");
  }
  LOCKSTEP_RETURN_IF_ERROR(CheckRange("--on-rank", faults.on_rank, 0, 1 << 20));
  LOCKSTEP_RETURN_IF_ERROR(
      CheckRange("--fault-attempts", faults.attempts, 0, 1 << 20));
  return CheckRange("--step-delay-ms", faults.step_delay / Duration(1000000), 0,
                    60'000);
}

void AddDataFlags(Command* command, TrainerOptions* o) {
  command->Add("--train PATH", &o->data.train,
               "Training data: a directory, files or globs of TFRecord shards",
               Required);
  command->Add("--eval PATH", &o->data.eval,
               "Evaluation data; without it no accuracy is measured");
  command->Add(
      "--model", &o->model,
      "cnn (small images), shallow (one convolution, two dense layers) "
      "or resnet",
      ShowDefault);
  command->Add("--classes", &o->classes,
               "Number of classes; 0: the largest training label + 1, which "
               "reads all training data once");
}

void AddTrainingFlags(Command* command, TrainerOptions* o) {
  command->Add("--epochs", &o->epochs, "Passes over the training data",
               ShowDefault);
  command->Add("--max-steps", &o->max_steps,
               "Number of steps; 0: as many as --epochs needs");
  command->Add("--batch-size", &o->batch_size,
               "Samples of each replica in a forward and backward pass",
               ShowDefault);
  command->Add("--accumulate", &o->accumulate,
               "Passes per step; each replica accumulates their gradients "
               "before one reduction",
               ShowDefault);
  command->Add("--optimizer", &o->optimizer.kind, "sgd or adam", ShowDefault);
  command->Add("--learning-rate", &o->rate.learning_rate,
               "Default: 0.05 for sgd, 0.001 for adam");
  command->Add("--momentum", &o->optimizer.momentum, "Momentum of sgd; 0: none",
               ShowDefault);
  command->Add("--weight-decay", &o->optimizer.weight_decay, "Weight decay",
               ShowDefault);
  command->Add("--clip-norm", &o->reduction.clip_norm,
               "Largest norm of the gradient over all parameters; a larger one "
               "is scaled down; 0: no limit");
  command->Add("--scale-lr", &o->rate.scale_lr,
               "linear: --lr is for --reference-batch samples a step and grows "
               "with the global batch; or none",
               ShowDefault);
  command->Add("--reference-batch", &o->rate.reference_batch, "See --scale-lr",
               ShowDefault);
  command->Add("--lr-schedule", &o->rate.lr_schedule,
               "cosine: falls to 0 by the last step; or constant", ShowDefault);
  command->Add("--warmup-steps", &o->rate.warmup_steps,
               "Steps in which the learning rate rises from 0", ShowDefault);
  command->Add("--seed", &o->seed,
               "Seed of the weights and of the order of samples", ShowDefault);
  command->Add("--eval-every-epochs", &o->evaluation.every_epochs,
               "Steps between evaluations; 0: only at the end", ShowDefault);
  command->Add("--early-stopping-patience", &o->evaluation.patience,
               "Number of evaluations without a better accuracy after which "
               "training ends; 0: no limit");
}

void AddRunFlags(Command* command, TrainerOptions* o) {
  command->Add("--output DIR", &o->output.directory,
               "Directory for model.safetensors. Default: the job's output "
               "directory; without a job nothing is written");
  command->Add("--checkpoint-dir DIR", &o->output.checkpoint_dir,
               "Default: checkpoints in the output directory");
  command->Add(
      "--checkpoint-interval", &o->output.checkpoint_interval,
      "Steps between checkpoints outside a job; a job has its own interval");
  command->Add(
      "--backend", &o->reduction.backend,
      "Backend of reductions: shm (all ranks on one host), tcp, hierarchical "
      "(shm in each host, tcp between them), nccl (copies to the rank's GPU "
      "and back), or auto, which chooses by the placement of ranks",
      ShowDefault);
  command->Add("--wire", &o->reduction.wire,
               "Type in which gradients are reduced: fp32, or bf16 (half the "
               "bytes; the sum is off by up to 1/128 of the replicas' absolute "
               "values, between several ranks on several hosts 1/85)",
               ShowDefault);
  command->Add("--log-every", &o->run.log_every,
               "Steps between log lines; 0: none", ShowDefault);
  command->Add("--threads", &o->run.threads,
               "Compute threads per rank; 0: OMP_NUM_THREADS, else the rank's "
               "cpus, else 1");
  command->Add("--input-threads", &o->data.input_threads,
               "Threads per rank that read and decode samples", ShowDefault);
  command->Add("--recover", &o->run.recover,
               "Replace a lost rank while the others keep their state. Needs "
               "gradients in host memory");
  command->Add("--elastic", &o->run.elastic,
               "As --recover, and the others train on while ranks are away, to "
               "the same bits, unless --backend is nccl: they compute the "
               "shards of those as well. Gradients are reduced as fp32; the "
               "first rank that is there saves alone");
  command->Add("--param-hash", &o->run.param_hash,
               "Print a hash of the final parameters");
}

void AddFaultFlags(const FlagGroup& group, FaultOptions* f, int64_t* delay_ms) {
  group.Add("--allow-faults", &f->allowed, "Allow the flags below");
  group.Add("--fail-at-step", &f->fail_at_step,
            "Step at which to exit with an error");
  group.Add("--kill-at-step", &f->kill_at_step,
            "Step at which to die by SIGKILL");
  group.Add("--nan-at-step", &f->nan_at_step,
            "Step at which a gradient becomes NaN");
  group.Add("--on-rank", &f->on_rank, "Rank of these faults", ShowDefault);
  group.Add("--fault-attempts", &f->attempts,
            "Number of attempts with these faults", ShowDefault);
  group.Add("--step-delay-ms", delay_ms, "Delay of each step");
  group.Add("--faults", &f->points, "Fault points: name=crash@2,...");
}

}  // namespace

std::map<std::string, std::string> ConfigOf(const TrainerOptions& o) {
  return {
      {"program", fmt::format("lockstep-train {}", kVersion)},
      {"model", o.model},
      {"classes", fmt::format("{}", o.classes)},
      {"epochs", fmt::format("{}", o.epochs)},
      {"max-steps", fmt::format("{}", o.max_steps)},
      {"batch-size", fmt::format("{}", o.batch_size)},
      {"accumulate", fmt::format("{}", o.accumulate)},
      {"optimizer", o.optimizer.kind},
      {"learning-rate", fmt::format("{}", o.rate.learning_rate)},
      {"momentum", fmt::format("{}", o.optimizer.momentum)},
      {"weight-decay", fmt::format("{}", o.optimizer.weight_decay)},
      {"clip-norm", fmt::format("{}", o.reduction.clip_norm)},
      {"wire", o.reduction.wire},
      {"scale-lr", o.rate.scale_lr},
      {"reference-batch", fmt::format("{}", o.rate.reference_batch)},
      {"lr-schedule", o.rate.lr_schedule},
      {"warmup-steps", fmt::format("{}", o.rate.warmup_steps)},
      {"seed", fmt::format("{}", o.seed)},
      {"eval-every-epochs", fmt::format("{}", o.evaluation.every_epochs)},
      {"early-stopping-patience", fmt::format("{}", o.evaluation.patience)},
  };
}

Status CheckOptions(const TrainerOptions& o) {
  constexpr int64_t kMany = int64_t{1} << 40;
  if (o.data.train.empty()) return InvalidArgument("--train names no data");
  LOCKSTEP_RETURN_IF_ERROR(
      CheckChoice("--model", o.model, {"cnn", "shallow", "resnet"}));
  LOCKSTEP_RETURN_IF_ERROR(
      Annotate(collective::CheckNotRemoved(o.reduction.backend), "--backend"));
  LOCKSTEP_RETURN_IF_ERROR(
      CheckChoice("--backend", o.reduction.backend,
                  {"auto", "shm", "tcp", "hierarchical", "nccl"}));
  LOCKSTEP_RETURN_IF_ERROR(
      CheckChoice("--wire", o.reduction.wire, {"fp32", "bf16"}));
  LOCKSTEP_RETURN_IF_ERROR(
      CheckChoice("--optimizer", o.optimizer.kind, {"sgd", "adam"}));
  LOCKSTEP_RETURN_IF_ERROR(
      CheckChoice("--scale-lr", o.rate.scale_lr, {"none", "linear"}));
  LOCKSTEP_RETURN_IF_ERROR(
      CheckChoice("--lr-schedule", o.rate.lr_schedule, {"constant", "cosine"}));
  LOCKSTEP_RETURN_IF_ERROR(CheckRange("--classes", o.classes, 0, 1 << 20));
  LOCKSTEP_RETURN_IF_ERROR(CheckRange("--epochs", o.epochs, 1, 1 << 20));
  LOCKSTEP_RETURN_IF_ERROR(CheckRange("--max-steps", o.max_steps, 0, kMany));
  LOCKSTEP_RETURN_IF_ERROR(
      CheckRange("--batch-size", o.batch_size, 1, 1 << 20));
  // A rank's samples per step must be exactly countable (step_tail.h).
  LOCKSTEP_RETURN_IF_ERROR(CheckRange("--accumulate", o.accumulate, 1,
                                      ((int64_t{1} << 24) - 1) / o.batch_size));
  LOCKSTEP_RETURN_IF_ERROR(
      CheckRange("--reference-batch", o.rate.reference_batch, 1, 1 << 30));
  LOCKSTEP_RETURN_IF_ERROR(
      CheckRange("--warmup-steps", o.rate.warmup_steps, 0, kMany));
  LOCKSTEP_RETURN_IF_ERROR(
      CheckRange("--eval-every-epochs", o.evaluation.every_epochs, 0, kMany));
  LOCKSTEP_RETURN_IF_ERROR(
      CheckRange("--early-stopping-patience", o.evaluation.patience, 0, kMany));
  LOCKSTEP_RETURN_IF_ERROR(CheckRange("--checkpoint-interval",
                                      o.output.checkpoint_interval, 0, kMany));
  LOCKSTEP_RETURN_IF_ERROR(
      CheckRange("--log-every", o.run.log_every, 0, kMany));
  LOCKSTEP_RETURN_IF_ERROR(CheckRange("--threads", o.run.threads, 0, 1024));
  LOCKSTEP_RETURN_IF_ERROR(
      CheckRange("--input-threads", o.data.input_threads, 1, 256));
  LOCKSTEP_RETURN_IF_ERROR(
      CheckNumber("--learning-rate", o.rate.learning_rate, 0, 1e6));
  LOCKSTEP_RETURN_IF_ERROR(
      CheckNumber("--momentum", o.optimizer.momentum, 0, 1));
  LOCKSTEP_RETURN_IF_ERROR(
      CheckNumber("--weight-decay", o.optimizer.weight_decay, 0, 1));
  LOCKSTEP_RETURN_IF_ERROR(
      CheckNumber("--clip-norm", o.reduction.clip_norm, 0, 1e30));
  if (o.run.elastic && o.reduction.wire != "fp32") {
    return InvalidArgument("--elastic needs --wire fp32, but --wire is '{}'",
                           o.reduction.wire);
  }
  if (o.evaluation.patience > 0 && o.data.eval.empty()) {
    return InvalidArgument("--early-stopping-patience needs --eval");
  }
  return CheckFaults(o.faults);
}

StatusOr<std::optional<TrainerOptions>> ParseFlags(int argc, char** argv) {
  TrainerOptions options;
  int64_t delay_ms = 0;
  Command command(
      "lockstep-train",
      "Train an image classifier on TFRecord shards, alone or as one rank of a "
      "lockstep job.",
      "Example:\n"
      "  lockstep-train --train data/train --eval data/eval --epochs 5 "
      "--output out");
  command.AddProgramFlags(
      {1, kVersion, "", {"lockstep(1)", "lockstep-data(1)"}});
  command.last_wins = true;
  AddDataFlags(&command, &options);
  AddTrainingFlags(&command, &options);
  AddRunFlags(&command, &options);
  AddFaultFlags(command.Group("Faults, for tests (need --allow-faults)"),
                &options.faults, &delay_ms);
  const ParsedCommand parsed = Parse(command, argc, argv);
  if (!parsed.error.empty()) {
    return InvalidArgument("{} (see --help)", parsed.error);
  }
  if (!parsed.command) {
    std::cout << parsed.text;
    return std::optional<TrainerOptions>();
  }
  options.faults.step_delay = Duration(delay_ms * 1'000'000);
  if (options.rate.learning_rate == 0) {
    options.rate.learning_rate =
        options.optimizer.kind == "adam" ? 0.001 : 0.05;
  }
  LOCKSTEP_RETURN_IF_ERROR(CheckOptions(options));
  return std::optional<TrainerOptions>(std::move(options));
}

}  // namespace lockstep::worker::trainer
