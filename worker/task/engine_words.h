// Messages of container engines, for users.
#ifndef LOCKSTEP_WORKER_TASK_ENGINE_WORDS_H_
#define LOCKSTEP_WORKER_TASK_ENGINE_WORDS_H_

#include <string>
#include <string_view>

namespace lockstep::worker::task {

// Returns an engine's line without "Error: " and log decoration. Uses only the
// standard library, because shims use it.
std::string EngineSentence(std::string_view line);
// Matches "Run 'docker run --help' for more information", which follows the
// reason.
bool IsEngineAdvice(std::string_view line);
// Parses the message of docker's init, the container's last line, that it
// cannot start the program. Returns "" for another line.
std::string ProgramNotRun(std::string_view line);

}  // namespace lockstep::worker::task

#endif  // LOCKSTEP_WORKER_TASK_ENGINE_WORDS_H_
