// Parses a command that runs Python. Pure.
#ifndef LOCKSTEP_WORKER_AGENT_PREPARE_PYTHON_COMMAND_H_
#define LOCKSTEP_WORKER_AGENT_PREPARE_PYTHON_COMMAND_H_

#include <cstddef>
#include <map>
#include <string>
#include <vector>

#include "common/model/assignment.h"

namespace lockstep::worker::agent {

// "python3", "/opt/venv/bin/python3.11" ...
bool IsPython(const std::string& program);
// Returns a task's command on this node: if the job has a runtime, its
// interpreter replaces "python" and "python3".
std::vector<std::string> CommandOf(const GangSpec& spec, const LocalTask& task);
// MODULE of `python [options] -m MODULE ...`; "": it names none.
std::string ModuleOf(const std::vector<std::string>& argv);
// FILE.py of `python [options] FILE.py ...`; "": it names none.
std::string ScriptOf(const std::vector<std::string>& argv);
// The index of FILE or -m in such a command; 0 for any other command.
size_t ProgramArgument(const std::vector<std::string>& argv);
// The interpreter of the gang's packages: the runtime's, else the one of a
// command; "": none.
std::string InterpreterOf(const GangSpec& spec);

// The parts of a PYTHONPATH.
std::vector<std::string> SplitPath(const std::string& text);
// `path` in front of the PYTHONPATH in `environment`.
void PutPythonPath(const std::vector<std::string>& path,
                   std::map<std::string, std::string>* environment);

}  // namespace lockstep::worker::agent

#endif  // LOCKSTEP_WORKER_AGENT_PREPARE_PYTHON_COMMAND_H_
