#include "worker/bench/options.h"

#include <fmt/format.h>

#include <cctype>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <iostream>
#include <string_view>

#include "common/base/ascii.h"
#include "common/base/version.h"
#include "common/cli/command.h"
#include "worker/bench/table.h"
#include "worker/collective/removed_backend.h"

namespace lockstep::worker::bench {
namespace {

constexpr double kMostParameters = 4e9;

// "3=25" or "3=25%" of --slow. False: it is something else.
bool ParseSlow(const std::string& text, StepBenchOptions* options) {
  double percent = 0;
  int end = 0;
  if (std::sscanf(text.c_str(), "%d=%lf%n", &options->slow_rank, &percent,
                  &end) != 2) {
    return false;
  }
  const std::string_view rest = std::string_view(text).substr(end);
  options->slow_share = percent / 100;
  return (rest.empty() || rest == "%") && options->slow_rank >= 0 &&
         percent >= 0 && percent <= 1e5;
}

constexpr int kExitUsage = 2;
constexpr uint64_t kMostBytes = uint64_t{16} << 30;
constexpr int kMostRanks = 256;
// Default of timed steps: the window in which a straggler is determined.
constexpr int kSteps = 100;

using std::chrono::seconds;

struct Raw {
  std::string what;
  std::string type = "float";
  std::string op = "sum";
  double timeout = 60;
  int iterations = 0;  // 0: not given
  std::string devices;
  StepBenchTexts step;
};

void AddSizes(const FlagGroup& group, BenchOptions* o) {
  group.Add("-b,--minbytes SIZE", &o->min_bytes,
            "Smallest size, such as 1K (default: 1K)", AsSize);
  group.Add("-e,--maxbytes SIZE", &o->max_bytes, "Largest size (default: 64M)",
            AsSize);
  group.Add("-i,--stepbytes SIZE", &o->increment,
            "Increment between sizes, instead of a factor", AsSize);
  group.Add("-f,--stepfactor N", &o->factor, "Factor between sizes",
            InRange(uint64_t{2}, uint64_t{1} << 20), ShowDefault);
}

void AddRuns(const FlagGroup& group, BenchOptions* o, Raw* raw) {
  group.Add("-n,--iters N", &raw->iterations,
            "Timed operations of each size (default: 20), or steps (default: "
            "100)",
            InRange(1, 1000000));
  group.Add("-w,--warmup-iters N", &o->warm_up,
            "Untimed operations before these", InRange(0, 1000000),
            ShowDefault);
  group.Add("-c,--check 0|1", &o->check,
            "1: check a result of each size against float64; 0: do not check",
            WithValue, ShowDefault);
  group.Add("-d,--datatype TYPE", &raw->type, TypeNames().List(), ShowDefault);
  group.Add("-o,--op OP", &raw->op, OpNames().List(), ShowDefault);
  group.Add("-r,--root RANK", &o->root, "Root rank of a broadcast",
            InRange(0, 1 << 20), ShowDefault);
}

void AddRanks(const FlagGroup& group, BenchOptions* o, Raw* raw) {
  group.Add("-g,--ranks,--ngpus N", &o->ranks,
            "Processes to start on this host, one per rank; ignored in a job",
            InRange(1, kMostRanks), ShowDefault, SetsGiven(&o->ranks_given));
  group.Add("--backend NAME", &o->backend, "auto, shm, tcp, nccl, ...",
            ShowDefault);
  group.Add("--devices LIST", &raw->devices,
            "GPU of each rank started here, such as 0,0 (default: 0,1,...). "
            "Ranks that share a GPU reach each other by sockets");
  group.Add("--bind ADDRESS", &o->bind_address,
            "Listen address of ranks started here", ShowDefault);
  group.Add("--pin", &o->pin, "Pin rank i to the i-th allowed core");
  group.Add("--timeout S", &raw->timeout, "Timeout of one operation in seconds",
            InRange(0.001, 86400.0), ShowDefault);
}

void AddOutput(Command* command, BenchOptions* o) {
  command->Add("--json FILE", &o->json,
               "Also write {machine, versions, results} to this file as JSON");
  command->Add("--json-line", &o->json_line, "Also print the JSON as one line");
  command->Add(
      "--check-arguments", &o->only_arguments,
      "Only check the arguments: exit with 0 if they are valid, else with 2");
}

// Checks that the parser does not make. Returns the error, or "".
std::string Settle(const Raw& raw, BenchOptions* o) {
  if (raw.what == "step") {
    o->steps = true;
  } else {
    o->steps = raw.what == "all";
    const std::string wrong = CollectiveNames().Take(raw.what, &o->collectives);
    if (!wrong.empty()) return wrong + ", step";
  }
  std::string wrong = TypeNames().Take(raw.type, &o->types);
  if (!wrong.empty()) return "--datatype " + wrong;
  wrong = OpNames().Take(raw.op, &o->ops);
  if (!wrong.empty()) return "--op " + wrong;
  if (Status status = collective::CheckNotRemoved(o->backend); !status.ok()) {
    return "--backend: " + Message(status);
  }
  if (o->min_bytes > o->max_bytes) {
    return fmt::format("--minbytes {} is above --maxbytes {}", o->min_bytes,
                       o->max_bytes);
  }
  if (o->max_bytes > kMostBytes) return "at most 16G per operation";
  if (!raw.devices.empty()) {
    if (o->backend != "nccl") {
      return fmt::format("--devices is for --backend nccl, not for {}",
                         o->backend);
    }
    if (!ParseDevices(raw.devices, o->ranks, &o->devices)) {
      return fmt::format(
          "--devices: \"{}\" does not have a GPU's number for each of {} "
          "ranks, such as 0,1",
          raw.devices, o->ranks);
    }
  }
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

void AddStepOptions(const FlagGroup& group, StepBenchOptions* o,
                    StepBenchTexts* texts) {
  group.Add("--parameters COUNT", &texts->parameters,
            "Number of float32 parameters, such as 25.6M", ShowDefault);
  group.Add("--tensors N", &o->tensors,
            "Number of tensors that hold the parameters", InRange(1, 100000),
            ShowDefault);
  group.Add("--compute MS", &texts->compute_ms,
            "Compute time of a micro-batch in milliseconds, a third of it "
            "forward; rank 0 calibrates the work for all ranks",
            InRange(0.0, 1e6), ShowDefault);
  group.Add("--flops COUNT", &texts->flops,
            "Floating-point operations of a micro-batch, instead of --compute, "
            "such as 2G",
            Excludes({"--compute"}));
  group.Add("--bucket SIZE", &o->bucket_bytes,
            "Largest bucket size (default: the backend's)", AsSize);
  group.Add("--wire TYPE", &texts->wire,
            "Type of gradients on the wire: fp32, or bf16 for half the bytes",
            OneOf({"fp32", "bf16"}), ShowDefault);
  group.Add("--accumulate N", &o->accumulate,
            "Micro-batches to accumulate before a reduction", InRange(1, 10000),
            ShowDefault);
  group.Add("--slow RANK=PERCENT", &texts->slow,
            "Slow a rank down by a percentage, such as 1=25");
}

}  // namespace

bool ParseCount(const std::string& text, double* value) {
  if (text.empty() ||
      (!std::isdigit(static_cast<unsigned char>(text[0])) && text[0] != '.')) {
    return false;
  }
  const char* const end = text.data() + text.size();
  const auto [after, error] = std::from_chars(text.data(), end, *value);
  if (error != std::errc()) return false;
  constexpr std::string_view kUnits = "KMGT";
  if (after + 1 == end) {
    const size_t unit = kUnits.find(
        static_cast<char>(std::toupper(static_cast<unsigned char>(*after))));
    if (unit == std::string_view::npos) return false;
    *value *= std::pow(1000.0, static_cast<double>(unit + 1));
  } else if (after != end) {
    return false;
  }
  return std::isfinite(*value) && *value > 0;
}

bool ParseDevices(const std::string& text, int ranks,
                  std::vector<int>* devices) {
  devices->clear();
  for (const std::string_view part : SplitText(text, ',')) {
    int device = 0;
    const char* const end = part.data() + part.size();
    const auto [after, error] = std::from_chars(part.data(), end, device);
    if (error != std::errc() || after != end || device < 0) return false;
    devices->push_back(device);
  }
  return static_cast<int>(devices->size()) == ranks;
}

std::string SettleSteps(const StepBenchTexts& texts, StepBenchOptions* o) {
  double parameters = 0;
  if (!ParseCount(texts.parameters, &parameters) || parameters < 1 ||
      parameters > kMostParameters) {
    return fmt::format("--parameters: \"{}\" is not a number from 1 to 4G",
                       texts.parameters);
  }
  o->parameters = static_cast<uint64_t>(parameters);
  if (static_cast<uint64_t>(o->tensors) > o->parameters) {
    o->tensors = static_cast<int>(o->parameters);
  }
  if (!texts.flops.empty() && !ParseCount(texts.flops, &o->flops)) {
    return fmt::format("--flops: \"{}\" is not a number such as 2G",
                       texts.flops);
  }
  o->bf16_wire = texts.wire == "bf16";
  if (o->bucket_bytes != 0 && o->bucket_bytes < 4) {
    return "--bucket must be at least 4 bytes";
  }
  if (!texts.slow.empty() && !ParseSlow(texts.slow, o)) {
    return fmt::format(
        "--slow: \"{}\" does not have the form RANK=PERCENT, such as 1=25",
        texts.slow);
  }
  o->compute_seconds = texts.compute_ms / 1000;
  return "";
}

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
      "\nStarts its ranks on this host, or runs as a rank of a job\n(lockstep "
      "bench --hosts N). Time is that of one operation on the\nslowest rank; "
      "out-of-place operations include a copy, except all_to_all. algbw is "
      "size / time,\nbusbw "
      "the bandwidth per link of a ring, both in 10^9 bytes a "
      "second.\n\n`step` trains a synthetic model through the reducer that "
      "trainers use:\nrank 0 alone, all ranks without reductions, then with "
      "reductions.\nEfficiency is rank 0's time alone over the step time. The "
      "table shows\nper rank and step the time of reductions, its part hidden "
      "by computing,\nits exposed part, and the wait for the last rank. Over "
      "shared memory\nranks advance reductions themselves, so none of that "
      "time is hidden.\n\nExit codes: 0 success, 1 wrong data or another "
      "error, 2 wrong usage.\n\nExamples:\n  lockstep-bench allreduce -b 8 -e "
      "128M -f 2 -g 2\n  lockstep-bench all -g 4 --backend tcp --json "
      "results.json\n  lockstep-bench step --parameters 25.6M --compute 50 "
      "--wire bf16\n  lockstep-bench step --slow 1=25 -n 50");
  command.AddProgramFlags(
      {1, kVersion, "", {"lockstep(1)", "lockstep-train(1)"}});
  command.Add("what WHAT", &raw.what,
              "allreduce, reduce_scatter, all_gather, broadcast, all_to_all, "
              "step or all",
              Required);
  AddSizes(command.Group("Sizes (as in nccl-tests)"), o);
  AddRuns(command.Group("Operations (as in nccl-tests)"), o, &raw);
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

}  // namespace lockstep::worker::bench
