// Messages of container engines, for users.
#ifndef LOCKSTEP_WORKER_TASK_ENGINE_WORDS_H_
#define LOCKSTEP_WORKER_TASK_ENGINE_WORDS_H_

#include <string>
#include <string_view>

namespace lockstep {

// A line of an engine without "Error: " and a log line's decoration. Of nothing
// but the standard library: shims have it, too.
std::string EngineSentence(std::string_view line);
// "Run 'docker run --help' for more information", which comes after the reason.
bool IsEngineAdvice(std::string_view line);
// Parses the message of docker's init, the container's last line, that it
// cannot start the program. Returns "" for another line.
std::string ProgramNotRun(std::string_view line);

}  // namespace lockstep

#endif  // LOCKSTEP_WORKER_TASK_ENGINE_WORDS_H_
