#include "worker/bench/step_options.h"

#include <fmt/format.h>

#include <cctype>
#include <charconv>
#include <cmath>
#include <string_view>

namespace lockstep {
namespace {

constexpr double kMostParameters = 4e9;

// "3=25" of --slow. False: it is something else.
bool ParseSlow(std::string_view text, StepBenchOptions* options) {
  const size_t equals = text.find('=');
  if (equals == std::string_view::npos) return false;
  const std::string_view rank = text.substr(0, equals);
  std::string_view share = text.substr(equals + 1);
  if (share.ends_with('%')) share.remove_suffix(1);
  double percent = 0;
  const auto ranks = std::from_chars(rank.data(), rank.data() + rank.size(),
                                     options->slow_rank);
  const auto shares =
      std::from_chars(share.data(), share.data() + share.size(), percent);
  if (ranks.ec != std::errc() || ranks.ptr != rank.data() + rank.size() ||
      shares.ec != std::errc() || shares.ptr != share.data() + share.size()) {
    return false;
  }
  options->slow_share = percent / 100;
  return options->slow_rank >= 0 && percent >= 0 && percent <= 1e5;
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

void AddStepOptions(const FlagGroup& group, StepBenchOptions* o,
                    StepBenchTexts* texts) {
  group.Add("--parameters COUNT", &texts->parameters,
            "Of the model, float32, as 25.6M", ShowDefault);
  group.Add("--tensors N", &o->tensors,
            "That these are cut in; each is ready at once", InRange(1, 100000),
            ShowDefault);
  group.Add("--compute MS", &texts->compute_ms,
            "Milliseconds of computing a micro-batch, a third of it forward; "
            "measured on rank 0, all do as much work",
            InRange(0.0, 1e6), ShowDefault);
  group.Add("--flops COUNT", &texts->flops,
            "Floating-point operations of a micro-batch instead, as 2G",
            Excludes({"--compute"}));
  group.Add("--bucket SIZE", &o->bucket_bytes,
            "Largest part that is reduced at once (default: the backend's)",
            AsSize);
  group.Add("--wire TYPE", &texts->wire,
            "What gradients are sent as: fp32, bf16 (half the bytes)",
            ShowDefault);
  group.Add("--accumulate N", &o->accumulate,
            "Micro-batches that are added up before a reduction",
            InRange(1, 10000), ShowDefault);
  group.Add(
      "--slow RANK=PERCENT", &texts->slow,
      "Let a rank compute so much longer, as 1=25: what a slow host costs");
}

std::string SettleSteps(const StepBenchTexts& texts, StepBenchOptions* o) {
  double parameters = 0;
  if (!ParseCount(texts.parameters, &parameters) || parameters < 1 ||
      parameters > kMostParameters) {
    return fmt::format("--parameters: \"{}\" is no number from 1 to 4G",
                       texts.parameters);
  }
  o->parameters = static_cast<uint64_t>(parameters);
  if (static_cast<uint64_t>(o->tensors) > o->parameters) {
    o->tensors = static_cast<int>(o->parameters);
  }
  if (!texts.flops.empty() && !ParseCount(texts.flops, &o->flops)) {
    return fmt::format("--flops: \"{}\" is no number as 2G", texts.flops);
  }
  if (texts.wire != "fp32" && texts.wire != "bf16") {
    return fmt::format("--wire: \"{}\" is neither fp32 nor bf16", texts.wire);
  }
  o->bf16_wire = texts.wire == "bf16";
  if (o->bucket_bytes != 0 && o->bucket_bytes < 4) {
    return "--bucket wants 4 bytes at least";
  }
  if (!texts.slow.empty() && !ParseSlow(texts.slow, o)) {
    return fmt::format("--slow: \"{}\" is not as RANK=PERCENT, 1=25",
                       texts.slow);
  }
  o->compute_seconds = texts.compute_ms / 1000;
  return "";
}

}  // namespace lockstep
