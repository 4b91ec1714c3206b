// Completion of command lines for bash, zsh and fish.
//
// The scripts know nothing: they hand the words to `lockstep __complete`,
// which walks the tree of commands, so that they are never out of date.
#ifndef LOCKSTEP_CLIENT_CLI_COMPLETION_H_
#define LOCKSTEP_CLIENT_CLI_COMPLETION_H_

#include <string>
#include <utility>
#include <vector>

#include "client/cli/cli.h"

namespace lockstep {

struct Completion {
  // What the last word may become, each with what it means.
  std::vector<std::pair<std::string, std::string>> words;
  // What else it may be; the names are asked for by who can.
  enum class Also { kNothing, kFiles, kDirs, kJobs, kNodes };
  Also also = Also::kNothing;
  // What of the last word stays in front of a name: "--opt=" or "a,b,".
  std::string kept;
  // The part of it that names must begin with.
  std::string prefix;
};

// `words`: those after the program's name up to the cursor, the last one not
// finished, maybe empty. Pure.
Completion Complete(const Command& root, std::vector<std::string> words);

// `lockstep __complete WORDS...`: a line for each completion, "WORD\tMEANING";
// ":files" or ":dirs" where a path may stand. Asks the coordinator for names
// for at most 300 ms, and says nothing where that fails. Returns 0.
int RunComplete(const std::vector<std::string>& words, CliEnvironment* env);

// bash, zsh or fish. Empty: no such shell.
std::string CompletionScript(const std::string& shell);

}  // namespace lockstep

#endif  // LOCKSTEP_CLIENT_CLI_COMPLETION_H_
