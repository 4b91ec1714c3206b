// Completion of command lines for bash, zsh and fish.
//
// The scripts pass the words to `lockstep __complete`, which walks the tree of
// commands, so they never become stale.
#ifndef LOCKSTEP_CLIENT_CLI_COMPLETION_H_
#define LOCKSTEP_CLIENT_CLI_COMPLETION_H_

#include <string>
#include <utility>
#include <vector>

#include "client/cli/cli.h"

namespace lockstep::cli {

struct Completion {
  // Candidates for the last word, each with its meaning.
  std::vector<std::pair<std::string, std::string>> words;
  // Further candidates, which the caller lists.
  enum class Also { kNothing, kFiles, kDirs, kJobs, kNodes };
  Also also = Also::kNothing;
  // The part of the last word that precedes a name: "--opt=" or "a,b,".
  std::string kept;
  // The prefix that names must have.
  std::string prefix;
};

// `words` are those after the program's name up to the cursor. The last one is
// unfinished and may be empty. Pure.
Completion Complete(const Command& root, std::vector<std::string> words);

// `lockstep __complete WORDS...` prints a line for each completion,
// "WORD\tMEANING", and ":files" or ":dirs" if a path is valid. Asks the
// coordinator for names for at most 300 ms and prints none on failure. Returns
// 0.
int RunComplete(const std::vector<std::string>& words, CliEnvironment* env);

// `shell` is bash, zsh or fish. Returns "" for any other.
std::string CompletionScript(const std::string& shell);

}  // namespace lockstep::cli

#endif  // LOCKSTEP_CLIENT_CLI_COMPLETION_H_
