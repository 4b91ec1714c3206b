#include "worker/bench/options.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <iostream>

#include "common/base/version.h"
#include "common/cli/man.h"
#include "worker/bench/names.h"

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

void AddSizes(CLI::App* app, BenchOptions* o) {
  const char* const group = "Sizes, as nccl-tests";
  const auto size = [&](const char* name, uint64_t* value, const char* text) {
    app->add_option(name, *value, text)
        ->transform(CLI::AsSizeValue(false))
        ->type_name("SIZE")
        ->group(group);
  };
  size("-b,--minbytes", &o->min_bytes, "Least size, as 1K (default: 1K)");
  size("-e,--maxbytes", &o->max_bytes, "Largest size (default: 64M)");
  size("-i,--stepbytes", &o->increment,
       "Add so much from one size to the next, instead of multiplying");
  app->add_option("-f,--stepfactor", o->factor,
                  "Multiply by so much from one size to the next")
      ->check(CLI::Range(uint64_t{2}, uint64_t{1} << 20))
      ->capture_default_str()
      ->type_name("N")
      ->group(group);
}

void AddRuns(CLI::App* app, BenchOptions* o, Raw* raw) {
  const char* const group = "What is run, as nccl-tests";
  app->add_option("-n,--iters", raw->iterations,
                  "Timed operations of each size (default: 20), or steps "
                  "(default: 100)")
      ->check(CLI::Range(1, 1000000))
      ->type_name("N")
      ->group(group);
  app->add_option("-w,--warmup_iters", o->warm_up, "Operations before these")
      ->check(CLI::Range(0, 1000000))
      ->capture_default_str()
      ->type_name("N")
      ->group(group);
  app->add_option("-c,--check", o->check,
                  "1: compare a result of each size with float64; 0: do not")
      ->capture_default_str()
      ->type_name("0|1")
      ->group(group);
  app->add_option("-d,--datatype", raw->type, TypeNames())
      ->capture_default_str()
      ->type_name("TYPE")
      ->group(group);
  app->add_option("-o,--op", raw->op, OpNames())
      ->capture_default_str()
      ->type_name("OP")
      ->group(group);
  app->add_option("-r,--root", o->root, "Of a broadcast")
      ->check(CLI::Range(0, 1 << 20))
      ->capture_default_str()
      ->type_name("RANK")
      ->group(group);
}

CLI::Option* AddRanks(CLI::App* app, BenchOptions* o, Raw* raw) {
  const char* const group = "Ranks";
  CLI::Option* const ranks =
      app->add_option("-g,--ranks,--ngpus", o->ranks,
                      "Ranks to start on this host, each a process; as a rank "
                      "of a job not used")
          ->check(CLI::Range(1, kMostRanks))
          ->capture_default_str()
          ->type_name("N")
          ->group(group);
  app->add_option("--backend", o->backend, "auto, shm, tcp, gloo, nccl, ...")
      ->capture_default_str()
      ->type_name("NAME")
      ->group(group);
  app->add_option("--bind", o->bind_address,
                  "Address that ranks started here listen on")
      ->capture_default_str()
      ->type_name("ADDRESS")
      ->group(group);
  app->add_flag("--pin", o->pin, "Rank i stays on core i of those allowed")
      ->group(group);
  app->add_option("--timeout", raw->timeout, "Seconds for one operation")
      ->check(CLI::Range(0.001, 86400.0))
      ->capture_default_str()
      ->type_name("S")
      ->group(group);
  return ranks;
}

void AddOutput(CLI::App* app, BenchOptions* o) {
  app->add_option("--json", o->json,
                  "Also write {machine, versions, results} to this file")
      ->type_name("FILE");
  app->add_flag("--json-line", o->json_line,
                "Also write them as one line on stdout");
  app->add_flag("--check-arguments", o->only_arguments,
                "End with 0 when the arguments are right, with 2 when not");
}

// What CLI11 does not see; empty: all is well.
std::string Settle(const Raw& raw, BenchOptions* o) {
  if (raw.what == "step") {
    o->steps = true;
  } else {
    o->steps = raw.what == "all";
    const std::string wrong = TakeCollectives(raw.what, &o->collectives);
    if (!wrong.empty()) return wrong + ", step, model";
  }
  std::string wrong = TakeTypes(raw.type, &o->types);
  if (!wrong.empty()) return "--datatype " + wrong;
  wrong = TakeOps(raw.op, &o->ops);
  if (!wrong.empty()) return "--op " + wrong;
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
  CLI::App app("Measure collectives between ranks, as nccl-tests does.",
               "lockstep-bench");
  app.set_version_flag("--version", std::string("lockstep-bench ") + kVersion);
  AddManOption(&app, {1, kVersion, "", {"lockstep(1)", "lockstep-train(1)"}},
               &std::cout);
  app.footer(
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
      "\n"
      "\n`lockstep-bench model --help`: what larger clusters would do."
      "\n\nExit codes: 0 good, 1 wrong data or any other error, 2 wrong usage."
      "\n\nExamples:\n"
      "  lockstep-bench allreduce -b 8 -e 128M -f 2 -g 2\n"
      "  lockstep-bench all -g 4 --backend tcp --json results.json\n"
      "  lockstep-bench step --parameters 25.6M --compute 50 --wire bf16\n"
      "  lockstep-bench step --slow 1=25 -n 50");
  app.add_option("what", raw.what,
                 "allreduce, reduce_scatter, all_gather, broadcast, step, "
                 "model or all (but model)")
      ->required()
      ->type_name("WHAT");
  AddSizes(&app, o);
  AddRuns(&app, o, &raw);
  const CLI::Option* const ranks = AddRanks(&app, o, &raw);
  AddStepOptions(&app, &o->step, &raw.step);
  AddOutput(&app, o);
  std::string wrong;
  try {
    app.parse(argc, argv);
    o->ranks_given = ranks->count() > 0;
    wrong = Settle(raw, o);
  } catch (const CLI::Success& success) {  // Help or version.
    parsed.exit_code = app.exit(success);
    return parsed;
  } catch (const CLI::ParseError& error) {
    wrong = error.what();
  }
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
