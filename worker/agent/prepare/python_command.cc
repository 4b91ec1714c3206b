#include "worker/agent/prepare/python_command.h"

#include <algorithm>

namespace lockstep::worker::agent {
namespace {

// Returns the index of the first argument after the interpreter's options; -m
// and -c end the options, and some options take a value.
size_t FirstArgument(const std::vector<std::string>& argv) {
  size_t at = 1;
  while (at < argv.size() && argv[at].size() > 1 && argv[at][0] == '-') {
    if (argv[at] == "-m" || argv[at] == "-c") break;
    const bool takes_word = argv[at] == "-W" || argv[at] == "-X" ||
                            argv[at] == "--check-hash-based-pycs";
    at += takes_word ? 2 : 1;
  }
  return at;
}

}  // namespace

bool IsPython(const std::string& program) {
  const std::string name = program.substr(program.rfind('/') + 1);
  if (!name.starts_with("python")) return false;
  return std::all_of(name.begin() + 6, name.end(),
                     [](char c) { return (c >= '0' && c <= '9') || c == '.'; });
}

std::vector<std::string> CommandOf(const GangSpec& spec,
                                   const LocalTask& task) {
  std::vector<std::string> argv = task.argv;
  if (!argv.empty() && !task.container && !spec.runtime.python.empty() &&
      (argv[0] == "python" || argv[0] == "python3")) {
    argv[0] = spec.runtime.python;
  }
  return argv;
}

std::string ModuleOf(const std::vector<std::string>& argv) {
  if (argv.empty() || !IsPython(argv[0])) return "";
  const size_t at = FirstArgument(argv);
  return at + 1 < argv.size() && argv[at] == "-m" ? argv[at + 1] : "";
}

std::string ScriptOf(const std::vector<std::string>& argv) {
  if (argv.empty() || !IsPython(argv[0])) return "";
  const size_t at = FirstArgument(argv);
  return at < argv.size() && argv[at].ends_with(".py") ? argv[at] : "";
}

size_t ProgramArgument(const std::vector<std::string>& argv) {
  if (ModuleOf(argv).empty() && ScriptOf(argv).empty()) return 0;
  return FirstArgument(argv);
}

std::string InterpreterOf(const GangSpec& spec) {
  if (!spec.runtime.python.empty()) return spec.runtime.python;
  for (const LocalTask& task : spec.tasks) {
    if (!task.argv.empty() && !task.container && IsPython(task.argv[0])) {
      return task.argv[0];
    }
  }
  return "";
}

std::vector<std::string> SplitPath(const std::string& text) {
  std::vector<std::string> parts;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find(':', at), text.size());
    if (end > at) parts.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  return parts;
}

void PutPythonPath(const std::vector<std::string>& path,
                   std::map<std::string, std::string>* environment) {
  if (path.empty()) return;
  std::string text;
  for (const std::string& part : path) {
    text += (text.empty() ? "" : ":") + part;
  }
  std::string& value = (*environment)["PYTHONPATH"];
  value = value.empty() ? text : text + ":" + value;
}

}  // namespace lockstep::worker::agent
