#include "client/cli/log_text.h"

#include <fmt/format.h>

namespace lockstep {

std::string FormatLogLine(const v1::LogLine& line, const LogFormat& format,
                          const Style& style) {
  std::string text;
  if (format.prefix) {
    text += style.Dim(fmt::format("[{} {} {}]", line.rank(),
                                  Text(line.task_type()), line.task_index())) +
            " ";
  }
  if (format.timestamps) {
    text += style.Dim(FormatWallTime(ToWallTime(line.time()))) + " ";
  }
  return text + line.text() + "\n";
}

}  // namespace lockstep
