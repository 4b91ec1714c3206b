// What a command that runs Python names. Pure.
#ifndef LOCKSTEP_WORKER_AGENT_PREPARE_PYTHON_COMMAND_H_
#define LOCKSTEP_WORKER_AGENT_PREPARE_PYTHON_COMMAND_H_

#include <map>
#include <string>
#include <vector>

#include "common/model/assignment.h"

namespace lockstep {

// "python3", "/opt/venv/bin/python3.11" ...
bool IsPython(const std::string& program);
// What a task's command is on this node: "python" and "python3" are the
// runtime's interpreter, where the job has one.
std::vector<std::string> CommandOf(const GangSpec& spec, const LocalTask& task);
// MODULE of `python [options] -m MODULE ...`; "": it names none.
std::string ModuleOf(const std::vector<std::string>& argv);
// FILE.py of `python [options] FILE.py ...`; "": it names none.
std::string ScriptOf(const std::vector<std::string>& argv);
// The interpreter of the gang's packages: the runtime's, else the one of a
// command; "": none.
std::string InterpreterOf(const GangSpec& spec);

// The parts of a PYTHONPATH.
std::vector<std::string> SplitPath(const std::string& text);
// `path` in front of the PYTHONPATH in `environment`.
void PutPythonPath(const std::vector<std::string>& path,
                   std::map<std::string, std::string>* environment);

}  // namespace lockstep

#endif  // LOCKSTEP_WORKER_AGENT_PREPARE_PYTHON_COMMAND_H_
