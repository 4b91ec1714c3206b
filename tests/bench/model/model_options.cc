#include "tests/bench/model/model_options.h"

#include <cmath>
#include <cstdlib>
#include <functional>
#include <map>
#include <optional>

namespace lockstep::model {
namespace {

std::optional<double> Number(const std::string& text) {
  char* end = nullptr;
  const double value = std::strtod(text.c_str(), &end);
  if (text.empty() || *end != '\0' || !std::isfinite(value) || value < 0) {
    return std::nullopt;
  }
  return value;
}

std::optional<int> Count(const std::string& text) {
  const auto value = Number(text);
  if (!value || *value < 1 || *value > 1e6 || *value != std::floor(*value)) {
    return std::nullopt;
  }
  return static_cast<int>(*value);
}

bool SetHosts(const std::string& text, std::vector<int>* hosts) {
  hosts->clear();
  size_t begin = 0;
  for (;;) {
    const size_t end = text.find(',', begin);
    const auto count = Count(text.substr(begin, end - begin));
    if (!count) return false;
    hosts->push_back(*count);
    if (end == std::string::npos) return true;
    begin = end + 1;
  }
}

bool SetScaled(const std::string& text, double scale, double* value) {
  const auto number = Number(text);
  if (number) *value = *number * scale;
  return number.has_value();
}

bool SetMebibytes(const std::string& text, uint64_t* bytes) {
  const auto number = Number(text);
  if (!number || *number > 1e9) return false;
  *bytes = static_cast<uint64_t>(*number * (1 << 20));
  return true;
}

// From a rate in Gbit/s.
bool SetBeta(const std::string& text, double* beta) {
  const auto rate = Number(text);
  if (!rate || *rate <= 0) return false;
  *beta = 8 / (*rate * 1e9);
  return true;
}

// Sets one option from its value; false: it is no good.
using Setter = std::function<bool(const std::string&)>;

std::map<std::string, Setter> Setters(ModelOptions* o) {
  Cluster& c = o->cluster;
  Training& t = o->training;
  return {
      {"--hosts", [=](const auto& v) { return SetHosts(v, &o->hosts); }},
      {"--gpus-per-host",
       [&c](const auto& v) {
         const auto count = Count(v);
         if (count) c.gpus_per_host = *count;
         return count.has_value();
       }},
      {"--alpha-intra",
       [&c](const auto& v) { return SetScaled(v, 1e-6, &c.intra.alpha); }},
      {"--beta-intra",
       [&c](const auto& v) { return SetBeta(v, &c.intra.beta); }},
      {"--alpha-inter",
       [&c](const auto& v) { return SetScaled(v, 1e-6, &c.inter.alpha); }},
      {"--beta-inter",
       [&c](const auto& v) { return SetBeta(v, &c.inter.beta); }},
      {"--compute-ms",
       [&t](const auto& v) { return SetScaled(v, 1e-3, &t.compute_seconds); }},
      {"--parameters-mb",
       [&t](const auto& v) { return SetMebibytes(v, &t.gradient_bytes); }},
      {"--bucket-mb",
       [&t](const auto& v) {
         uint64_t bytes = 0;
         if (!SetMebibytes(v, &bytes) || bytes == 0) return false;
         t.buckets = SizesFor("hierarchical", bytes);
         return true;
       }},
  };
}

Cluster WithHosts(const ModelOptions& options, int hosts) {
  Cluster cluster = options.cluster;
  cluster.hosts = hosts;
  return cluster;
}

double Mebibytes(uint64_t bytes) {
  return static_cast<double>(bytes) / (1 << 20);
}

double GigabitsPerSecond(const Link& link) { return 8 / link.beta / 1e9; }

}  // namespace

StatusOr<ModelOptions> ParseModelOptions(
    const std::vector<std::string>& arguments) {
  ModelOptions options;
  const auto setters = Setters(&options);
  const std::map<std::string, bool*> flags = {{"--measure", &options.measure},
                                              {"--json", &options.json},
                                              {"--help", &options.help},
                                              {"-h", &options.help}};
  for (size_t i = 0; i < arguments.size(); ++i) {
    const size_t equals = arguments[i].find('=');
    const std::string name = arguments[i].substr(0, equals);
    if (const auto flag = flags.find(name); flag != flags.end()) {
      if (equals != std::string::npos) {
        return InvalidArgument("{} takes no value", name);
      }
      *flag->second = true;
      continue;
    }
    const auto setter = setters.find(name);
    if (setter == setters.end()) {
      return InvalidArgument(
          "step_model has no option {}; --help lists what it has", name);
    }
    std::string value;
    if (equals != std::string::npos) {
      value = arguments[i].substr(equals + 1);
    } else if (i + 1 < arguments.size()) {
      value = arguments[++i];
    } else {
      return InvalidArgument("{} needs a value", name);
    }
    if (!setter->second(value)) {
      return InvalidArgument("{} cannot be '{}'", name, value);
    }
  }
  return options;
}

std::string ModelHelp() {
  return "Predicts the time and efficiency of a training step, by latencies,\n"
         "rates and the plan of the gradient buckets.\n"
         "\n"
         "  --hosts N,N,...      One row each (1,8,64,512)\n"
         "  --gpus-per-host N    Ranks of each host (8)\n"
         "  --alpha-intra US     Latency within a host, microseconds (3)\n"
         "  --beta-intra GBIT    Rate within a host, Gbit/s (200)\n"
         "  --alpha-inter US     Latency between hosts (15)\n"
         "  --beta-inter GBIT    Rate of a host's line, Gbit/s (100)\n"
         "  --compute-ms MS      Forward and backward of a step (100)\n"
         "  --parameters-mb MIB  Gradients (98: ResNet-50 in float32)\n"
         "  --bucket-mb MIB      Largest bucket (2; jobs measure what suits\n"
         "                       them); the last one has at most 256 KiB\n"
         "  --measure            Latencies and rates of two ranks here: in\n"
         "                       shared memory, and over TCP on this host\n"
         "  --json               JSON in place of the table\n";
}

std::string ModelTable(const ModelOptions& options) {
  const Cluster& c = options.cluster;
  const Training& t = options.training;
  std::string text = fmt::format(
      "A prediction: alpha-beta model, {} ranks a host; within a host {:.1f} "
      "us "
      "and {:.1f} Gbit/s,\nbetween hosts {:.1f} us and {:.1f} Gbit/s a host; "
      "{:.1f} ms of computing a step, {:.1f} MiB of gradients\nin {} buckets "
      "of up to {:.1f} MiB, hidden behind the backward pass as far as it "
      "lasts.\n\n"
      "{:>6} {:>6} {:>14} {:>12} {:>12} {:>12} {:>11}\n",
      c.gpus_per_host, c.intra.alpha * 1e6, GigabitsPerSecond(c.intra),
      c.inter.alpha * 1e6, GigabitsPerSecond(c.inter), t.compute_seconds * 1e3,
      Mebibytes(t.gradient_bytes), Buckets(t).size(),
      Mebibytes(t.buckets.bucket), "hosts", "ranks", "algorithm", "reduce ms",
      "exposed ms", "step ms", "efficiency");
  for (const int hosts : options.hosts) {
    const Cluster cluster = WithHosts(options, hosts);
    const Step step = PredictStep(cluster, t);
    text += fmt::format(
        "{:>6} {:>6} {:>14} {:>12.2f} {:>12.2f} {:>12.2f} {:>10.1f}%\n", hosts,
        cluster.ranks(), cluster.ranks() > 1 ? Name(step.algorithm) : "none",
        step.busy * 1e3, step.exposed * 1e3, step.seconds() * 1e3,
        step.efficiency() * 100);
  }
  return text;
}

std::string ModelJson(const ModelOptions& options) {
  const Cluster& c = options.cluster;
  const Training& t = options.training;
  std::string rows;
  for (const int hosts : options.hosts) {
    const Cluster cluster = WithHosts(options, hosts);
    const Step step = PredictStep(cluster, t);
    rows += fmt::format(
        "{}\n    {{\"hosts\": {}, \"ranks\": {}, \"algorithm\": \"{}\", "
        "\"busy_seconds\": {:.9f}, \"exposed_seconds\": {:.9f}, "
        "\"step_seconds\": {:.9f}, \"efficiency\": {:.6f}}}",
        rows.empty() ? "" : ",", hosts, cluster.ranks(), Name(step.algorithm),
        step.busy, step.exposed, step.seconds(), step.efficiency());
  }
  return fmt::format(
      "{{\n  \"prediction\": \"alpha-beta\",\n  \"gpus_per_host\": {},\n  "
      "\"intra\": {{\"alpha_seconds\": {:.9e}, \"beta_seconds_per_byte\": "
      "{:.9e}}},\n  \"inter\": {{\"alpha_seconds\": {:.9e}, "
      "\"beta_seconds_per_byte\": {:.9e}}},\n  \"compute_seconds\": {:.9f},\n  "
      "\"gradient_bytes\": {},\n  \"bucket_bytes\": {},\n  \"results\": [{}\n  "
      "]\n}}\n",
      c.gpus_per_host, c.intra.alpha, c.intra.beta, c.inter.alpha, c.inter.beta,
      t.compute_seconds, t.gradient_bytes, t.buckets.bucket, rows);
}

}  // namespace lockstep::model
