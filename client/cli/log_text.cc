#include "client/cli/log_text.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "client/cli/output.h"
#include "common/base/log_line.h"

namespace lockstep::cli {

std::string FormatLogLine(const v1::LogLine& line, const LogFormat& format,
                          const Style& style) {
  std::string text;
  if (format.prefix) {
    const std::string who =
        line.rank() < 0
            ? Printable(line.task())
            : fmt::format("{} {} {}", line.rank(), Text(line.task_type()),
                          line.task_index());
    text += style.Dim("[" + who + "]") + " ";
  }
  if (format.timestamps) {
    text += style.Dim(FormatWallTime(ToWallTime(line.time()))) + " ";
  }
  return text + line.text() + "\n";
}

std::string Text(v1::Severity severity) {
  if (severity == v1::SEVERITY_UNSPECIFIED) return "DEFAULT";
  const std::string name = v1::Severity_Name(severity);
  // An unknown number from a newer coordinator is shown unchanged.
  return name.empty() ? std::to_string(severity) : name.substr(9);
}

std::string FormatStreamedLine(const v1::LogLine& line) {
  std::string time = FormatWallTime(ToWallTime(line.time())).substr(0, 19);
  if (time.size() > 10) time[10] = ' ';
  const std::string task =
      line.task().empty() ? "unknown_task" : Printable(line.task());
  return fmt::format("{}\t{} +0000\t{}\t\t{}\n", Text(line.severity()), time,
                     task, line.text());
}

std::string FormatLogJson(const std::string& job, const v1::LogLine& line) {
  nlohmann::ordered_json labels = {{"attempt", std::to_string(line.attempt())}};
  if (line.rank() >= 0) {
    labels["rank"] = std::to_string(line.rank());
    labels["stream"] = line.stream();
  }
  return DumpLine(
      {{"timestamp",
        cri::FormatRfc3339Nano(ToUnixNanos(ToWallTime(line.time())))},
       {"severity", Text(line.severity())},
       {"resource",
        {{"labels", {{"job_id", job}, {"task_name", line.task()}}}}},
       {"labels", std::move(labels)},
       {"textPayload", line.text()}});
}

}  // namespace lockstep::cli
