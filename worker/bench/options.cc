#include "worker/bench/options.h"

#include <fmt/format.h>

#include <iostream>

#include "common/base/version.h"
#include "common/cli/command.h"
#include "worker/bench/names.h"
#include "worker/collective/removed_backend.h"

namespace lockstep {
namespace {

constexpr int kExitUsage = 2;
constexpr uint64_t kMostBytes = uint64_t{16} << 30;
constexpr int kMostRanks = 256;
// Timed, where it is not said; as many as a straggler is looked for in.
constexpr int kSteps = 100;

using std::chrono::seconds;

struct Raw {
  std::string what;
  std::string type = "float";
  std::string op = "sum";
  double timeout = 60;
  int iterations = 0;  // 0: not given
  StepBenchTexts step;
};

void AddSizes(const FlagGroup& group, BenchOptions* o) {
  const auto size = [&](const char* name, uint64_t* value, const char* text) {
    group.Add(name, value, text, AsSize);
  };
  size("-b,--minbytes SIZE", &o->min_bytes, "Least size, as 1K (default: 1K)");
  size("-e,--maxbytes SIZE", &o->max_bytes, "Largest size (default: 64M)");
  size("-i,--stepbytes SIZE", &o->increment,
       "Add so much from one size to the next, instead of multiplying");
  group.Add("-f,--stepfactor N", &o->factor,
            "Multiply by so much from one size to the next",
            InRange(uint64_t{2}, uint64_t{1} << 20), ShowDefault);
}

void AddRuns(const FlagGroup& group, BenchOptions* o, Raw* raw) {
  group.Add("-n,--iters N", &raw->iterations,
            "Timed operations of each size (default: 20), or steps (default: "
            "100)",
            InRange(1, 1000000));
  group.Add("-w,--warmup_iters N", &o->warm_up, "Operations before these",
            InRange(0, 1000000), ShowDefault);
  group.Add("-c,--check 0|1", &o->check,
            "1: compare a result of each size with float64; 0: do not",
            WithValue, ShowDefault);
  group.Add("-d,--datatype TYPE", &raw->type, TypeNames(), ShowDefault);
  group.Add("-o,--op OP", &raw->op, OpNames(), ShowDefault);
  group.Add("-r,--root RANK", &o->root, "Of a broadcast", InRange(0, 1 << 20),
            ShowDefault);
}

void AddRanks(const FlagGroup& group, BenchOptions* o, Raw* raw) {
  group.Add("-g,--ranks,--ngpus N", &o->ranks,
            "Ranks to start on this host, each a process; as a rank of a job "
            "not used",
            InRange(1, kMostRanks), ShowDefault, SetsGiven(&o->ranks_given));
  group.Add("--backend NAME", &o->backend, "auto, shm, tcp, nccl, ...",
            ShowDefault);
  group.Add("--bind ADDRESS", &o->bind_address,
            "Address that ranks started here listen on", ShowDefault);
  group.Add("--pin", &o->pin, "Rank i stays on core i of those allowed");
  group.Add("--timeout S", &raw->timeout, "Seconds for one operation",
            InRange(0.001, 86400.0), ShowDefault);
}

void AddOutput(Command* command, BenchOptions* o) {
  command->Add("--json FILE", &o->json,
               "Also write {machine, versions, results} to this file");
  command->Add("--json-line", &o->json_line,
               "Also write them as one line on stdout");
  command->Add("--check-arguments", &o->only_arguments,
               "End with 0 when the arguments are right, with 2 when not");
}

// What the parser does not see; empty: all is well.
std::string Settle(const Raw& raw, BenchOptions* o) {
  if (raw.what == "step") {
    o->steps = true;
  } else {
    o->steps = raw.what == "all";
    const std::string wrong = TakeCollectives(raw.what, &o->collectives);
    if (!wrong.empty()) return wrong + ", step";
  }
  std::string wrong = TakeTypes(raw.type, &o->types);
  if (!wrong.empty()) return "--datatype " + wrong;
  wrong = TakeOps(raw.op, &o->ops);
  if (!wrong.empty()) return "--op " + wrong;
  if (Status status = CheckNotRemoved(o->backend); !status.ok()) {
    return "--backend: " + Message(status);
  }
  if (o->min_bytes > o->max_bytes) {
    return fmt::format("--minbytes {} is above --maxbytes {}", o->min_bytes,
                       o->max_bytes);
  }
  if (o->max_bytes > kMostBytes) return "at most 16G at once";
  if (o->ranks_given && o->root >= o->ranks) {
    return fmt::format("--root {}: there are {} ranks", o->root, o->ranks);
  }
  o->timeout = Seconds(raw.timeout);
  if (raw.iterations > 0) {
    o->iterations = raw.iterations;
  } else if (raw.what == "step") {
    o->iterations = kSteps;
  }
  wrong = SettleSteps(raw.step, &o->step);
  if (wrong.empty() && o->ranks_given && o->step.slow_rank >= o->ranks) {
    return fmt::format("--slow {}: there are {} ranks", o->step.slow_rank,
                       o->ranks);
  }
  return wrong;
}

}  // namespace

std::vector<uint64_t> SizesOf(const BenchOptions& options) {
  std::vector<uint64_t> sizes;
  uint64_t size = std::max<uint64_t>(options.min_bytes, 1);
  while (size <= options.max_bytes) {
    sizes.push_back(size);
    size = options.increment > 0 ? size + options.increment
                                 : size * options.factor;
  }
  if (sizes.empty()) sizes.push_back(size);
  return sizes;
}

ParsedBench ParseBench(int argc, char** argv) {
  ParsedBench parsed;
  BenchOptions* const o = &parsed.options;
  Raw raw;
  Command command(
      "lockstep-bench",
      "Measure collectives between ranks, as nccl-tests does.",
      "\nStarts its ranks on this host, or is one where a job has started it"
      "\n(lockstep bench --hosts N). Time is that of one operation of the"
      "\nslowest rank: out of place with a copy before it, in place without;"
      "\nalgbw is size / time, busbw what the wires of a ring would carry, in"
      "\n10^9 bytes a second."
      "\n"
      "\n`step` trains a synthetic model through the reducer that trainers use:"
      "\nrank 0 alone, all ranks side by side without reducing, then reducing."
      "\nEfficiency is rank 0's time alone over the step's. Of a rank's step:"
      "\nthe time some reduction was under way, how much of it computing hid,"
      "\nwhat it was exposed for, and for how long it waited for the rank that"
      "\ncame last. Over shared memory ranks move reductions on themselves, so"
      "\nthat none of it is hidden: there it is short."
      "\n\nExit codes: 0 good, 1 wrong data or any other error, 2 wrong usage."
      "\n\nExamples:\n"
      "  lockstep-bench allreduce -b 8 -e 128M -f 2 -g 2\n"
      "  lockstep-bench all -g 4 --backend tcp --json results.json\n"
      "  lockstep-bench step --parameters 25.6M --compute 50 --wire bf16\n"
      "  lockstep-bench step --slow 1=25 -n 50");
  command.AddProgramFlags(
      {1, kVersion, "", {"lockstep(1)", "lockstep-train(1)"}});
  command.Add("what WHAT", &raw.what,
              "allreduce, reduce_scatter, all_gather, broadcast, step or all",
              Required);
  AddSizes(command.Group("Sizes, as nccl-tests"), o);
  AddRuns(command.Group("What is run, as nccl-tests"), o, &raw);
  AddRanks(command.Group("Ranks"), o, &raw);
  AddStepOptions(command.Group("Of `step`"), &o->step, &raw.step);
  AddOutput(&command, o);
  const ParsedCommand line = Parse(command, argc, argv);
  if (!line.command && line.error.empty()) {
    std::cout << line.text;
    parsed.exit_code = 0;
    return parsed;
  }
  const std::string wrong = line.command ? Settle(raw, o) : line.error;
  if (!wrong.empty()) {
    fmt::print(stderr, "lockstep-bench: {} (see lockstep-bench --help)\n",
               wrong);
    parsed.exit_code = kExitUsage;
  } else if (o->only_arguments) {
    parsed.exit_code = 0;
  }
  return parsed;
}

}  // namespace lockstep
