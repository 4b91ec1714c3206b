#include "tests/bench/model/options.h"

#include <cmath>
#include <cstdlib>
#include <optional>
#include <sstream>

namespace lockstep::model {
namespace {

struct Flag {
  const char* name;
  const char* unit;
  const char* help;
  double least;
  bool whole;
  void (*set)(ModelOptions* o, double value);
};

double Beta(double gigabits) { return 8 / (gigabits * 1e9); }

uint64_t Bytes(double mebibytes) {
  return static_cast<uint64_t>(mebibytes * (1 << 20));
}

constexpr Flag kFlags[] = {
    {"--hosts", "N,...", "Rows of the table (1,8,64,512)", 1, true,
     [](ModelOptions* o, double v) {
       o->hosts.push_back(static_cast<int>(v));
     }},
    {"--gpus-per-host", "N", "Ranks of a host (8)", 1, true,
     [](ModelOptions* o, double v) {
       o->cluster.gpus_per_host = static_cast<int>(v);
     }},
    {"--alpha-intra", "US", "Latency within a host, microseconds (3)", 0, false,
     [](ModelOptions* o, double v) { o->cluster.intra.alpha = v * 1e-6; }},
    {"--beta-intra", "GBIT", "Rate within a host, Gbit/s (200)", 1e-6, false,
     [](ModelOptions* o, double v) { o->cluster.intra.beta = Beta(v); }},
    {"--alpha-inter", "US", "Latency between hosts (15)", 0, false,
     [](ModelOptions* o, double v) { o->cluster.inter.alpha = v * 1e-6; }},
    {"--beta-inter", "GBIT", "Rate of a host's line, Gbit/s (100)", 1e-6, false,
     [](ModelOptions* o, double v) { o->cluster.inter.beta = Beta(v); }},
    {"--compute-ms", "MS", "Forward and backward of a step (100)", 0, false,
     [](ModelOptions* o, double v) { o->training.compute_seconds = v * 1e-3; }},
    {"--parameters-mb", "MIB", "Gradients (98: ResNet-50 in float32)", 0, false,
     [](ModelOptions* o, double v) { o->training.gradient_bytes = Bytes(v); }},
    {"--bucket-mb", "MIB",
     "Largest bucket (2; jobs measure what suits them); the last one has at "
     "most 256 KiB",
     1e-5, false,
     [](ModelOptions* o, double v) {
       o->training.buckets = SizesFor("hierarchical", Bytes(v));
     }},
};

std::optional<double> NumberOf(const Flag& flag, const std::string& text) {
  char* end = nullptr;
  const double value = std::strtod(text.c_str(), &end);
  if (text.empty() || *end != '\0' || !(value >= flag.least && value <= 1e6) ||
      (flag.whole && value != std::floor(value))) {
    return std::nullopt;
  }
  return value;
}

bool Set(const Flag& flag, const std::string& text, ModelOptions* options) {
  std::istringstream values(text + ",");
  const bool list = std::string_view(flag.name) == "--hosts";
  if (list) options->hosts.clear();
  for (std::string one; std::getline(values, one, ',');) {
    const auto value = NumberOf(flag, list ? one : text);
    if (!value) return false;
    flag.set(options, *value);
  }
  return true;
}

double Mebibytes(uint64_t bytes) {
  return static_cast<double>(bytes) / (1 << 20);
}

}  // namespace

StatusOr<ModelOptions> ParseModelOptions(
    const std::vector<std::string>& arguments) {
  ModelOptions options;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const std::string& word = arguments[i];
    const size_t equals = word.find('=');
    const std::string name = word.substr(0, equals);
    if (word == "--help" || word == "-h") {
      options.help = true;
      continue;
    }
    const Flag* found = nullptr;
    for (const Flag& flag : kFlags) {
      if (name == flag.name) found = &flag;
    }
    if (found == nullptr) {
      return InvalidArgument(
          "step_model has no option {}; --help lists what it has", name);
    }
    std::string value;
    if (equals != std::string::npos) {
      value = word.substr(equals + 1);
    } else if (i + 1 < arguments.size()) {
      value = arguments[++i];
    }
    if (!Set(*found, value, &options)) {
      return InvalidArgument("{} cannot be '{}'", name, value);
    }
  }
  return options;
}

std::string ModelHelp() {
  std::string text =
      "usage: step_model [OPTION...]\n\n"
      "Predicts the time of a training step, and its efficiency, from the time "
      "of a\nmessage (docs/scale.md).\n\n";
  for (const Flag& flag : kFlags) {
    text += fmt::format("  {:<20} {}\n",
                        fmt::format("{} {}", flag.name, flag.unit), flag.help);
  }
  return text;
}

std::string ModelTable(const ModelOptions& options) {
  const Cluster& c = options.cluster;
  const Training& t = options.training;
  const auto gigabits = [](const Link& link) { return 8 / link.beta / 1e9; };
  std::string text = fmt::format(
      "A prediction: alpha-beta model, {} ranks a host; within a host {:.1f} "
      "us and {:.1f} Gbit/s,\nbetween hosts {:.1f} us and {:.1f} Gbit/s a "
      "host; {:.1f} ms of computing a step, {:.1f} MiB of gradients\nin {} "
      "buckets of up to {:.1f} MiB, hidden behind the backward pass as far as "
      "it lasts.\n\n{:>6} {:>6} {:>14} {:>12} {:>12} {:>12} {:>11}\n",
      c.gpus_per_host, c.intra.alpha * 1e6, gigabits(c.intra),
      c.inter.alpha * 1e6, gigabits(c.inter), t.compute_seconds * 1e3,
      Mebibytes(t.gradient_bytes), Buckets(t).size(),
      Mebibytes(t.buckets.bucket), "hosts", "ranks", "algorithm", "reduce ms",
      "exposed ms", "step ms", "efficiency");
  for (const int hosts : options.hosts) {
    Cluster cluster = c;
    cluster.hosts = hosts;
    const Step step = PredictStep(cluster, t);
    text += fmt::format(
        "{:>6} {:>6} {:>14} {:>12.2f} {:>12.2f} {:>12.2f} {:>10.1f}%\n", hosts,
        cluster.ranks(), cluster.ranks() > 1 ? Name(step.algorithm) : "none",
        step.busy * 1e3, step.exposed * 1e3, step.seconds() * 1e3,
        step.efficiency() * 100);
  }
  return text;
}

}  // namespace lockstep::model
