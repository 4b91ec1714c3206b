#include "worker/agent/checks/check_output.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>

namespace lockstep::worker::agent {
namespace {

constexpr std::string_view kNames[] = {"memory", "matmul", "all_reduce"};
constexpr std::string_view kUnits[] = {"GB/s", "TFLOP/s"};
constexpr double kMostValue = 1e9;

template <size_t kSize>
bool IsOneOf(const std::string_view (&words)[kSize], std::string_view word) {
  return std::find(std::begin(words), std::end(words), word) != std::end(words);
}

// For a text that a sentence ends with.
std::string Clean(std::string_view text) {
  std::string clean(text.substr(0, kMaxCheckText));
  for (char& c : clean) {
    if (c < 0x20 || c > 0x7e) c = '?';
  }
  return clean;
}

// The word before the next tab, which is removed from `line`.
std::string_view NextWord(std::string_view* line) {
  const size_t tab = std::min(line->find('\t'), line->size());
  const std::string_view word = line->substr(0, tab);
  line->remove_prefix(std::min(tab + 1, line->size()));
  return word;
}

bool ReadMeasured(std::string_view rest, GpuCheckPart* part) {
  const std::string_view number = NextWord(&rest);
  const auto parsed = std::from_chars(
      number.data(), number.data() + number.size(), part->value);
  part->unit = rest;
  return parsed.ec == std::errc() &&
         parsed.ptr == number.data() + number.size() &&
         std::isfinite(part->value) && part->value >= 0 &&
         part->value <= kMostValue && IsOneOf(kUnits, rest);
}

// False: the line is none of those above.
bool TakeLine(std::string_view line, GpuCheckOutput* output) {
  const std::string_view what = NextWord(&line);
  if (output->whole) return false;
  if (what == "end") {
    output->whole = true;
    return line.empty();
  }
  if (what == "cannot") {
    output->cannot = Clean(line);
    return !line.empty();
  }
  const std::string_view name = NextWord(&line);
  if (!IsOneOf(kNames, name) || output->parts.size() == kMaxCheckParts) {
    return false;
  }
  if (what == "begin") {
    output->open = name;
    return line.empty();
  }
  GpuCheckPart part{std::string(name)};
  if (what == "passed") {
    if (!ReadMeasured(line, &part)) return false;
  } else if (what == "failed" && !line.empty()) {
    part.failure = Clean(line);
  } else if (what == "skipped" && !line.empty()) {
    part.skipped = Clean(line);
  } else {
    return false;
  }
  if (output->open == name) output->open.clear();
  output->parts.push_back(std::move(part));
  return true;
}

}  // namespace

GpuCheckOutput ParseGpuCheck(std::string_view text) {
  GpuCheckOutput output;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (TakeLine(line, &output)) continue;
    output.broken = fmt::format("its check printed \"{}\", which it never does",
                                Clean(line.substr(0, 80)));
    break;
  }
  return output;
}

std::string FailureOf(const GpuCheckOutput& output, const GpuCheckEnd& end,
                      Duration took) {
  for (const GpuCheckPart& part : output.parts) {
    if (!part.failure.empty()) return part.name + ": " + part.failure;
  }
  const std::string where =
      output.open.empty() ? "between its parts" : "in " + output.open;
  if (end.hung) {
    return fmt::format("its check hung {}, and was killed after {}", where,
                       FormatDuration(took));
  }
  if (!end.exit.empty()) {
    return fmt::format("its check {} {}", end.exit, where);
  }
  if (!output.broken.empty()) return output.broken;
  return output.whole ? "" : fmt::format("its check ended {}", where);
}

}  // namespace lockstep::worker::agent
