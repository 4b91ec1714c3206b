#include "worker/task/engine_words.h"

namespace lockstep::worker::task {

std::string EngineSentence(std::string_view line) {
  constexpr size_t kMostBytes = 1024;
  // time="..." level=error msg="..."
  if (const size_t at = line.find(" msg=\"");
      line.starts_with("time=") && at != std::string_view::npos) {
    line.remove_prefix(at + 6);
    if (line.ends_with('"')) line.remove_suffix(1);
  }
  for (const std::string_view prefix :
       {"Error response from daemon: ", "Error: ", "docker: "}) {
    if (line.starts_with(prefix)) line.remove_prefix(prefix.size());
  }
  return std::string(line.substr(0, kMostBytes));
}

bool IsEngineAdvice(std::string_view line) {
  return line.starts_with("Run 'docker ") || line.starts_with("See 'docker ");
}

std::string ProgramNotRun(std::string_view line) {
  constexpr std::string_view kExec = "] exec ";
  constexpr std::string_view kFailed = " failed: ";
  // "[FATAL tini (7)] exec PROGRAM failed: No such file or directory".
  if (!line.starts_with("[FATAL tini (")) return "";
  const size_t exec = line.find(kExec);
  const size_t failed = line.rfind(kFailed);
  if (exec == line.npos || failed == line.npos || failed < exec) return "";
  const size_t begin = exec + kExec.size();
  return std::string(line.substr(begin, failed - begin));
}

}  // namespace lockstep::worker::task
