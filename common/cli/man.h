// A program's manual page out of its description: the source of --help and of
// the page are one. Pure.
#ifndef LOCKSTEP_COMMON_CLI_MAN_H_
#define LOCKSTEP_COMMON_CLI_MAN_H_

#include <string>

#include "common/cli/command.h"

namespace lockstep {

// The page of `root` and all its commands, for man(1).
std::string ManualPage(const Command& root);

// Text as roff shows it unchanged.
std::string RoffText(const std::string& text);
// An argument of a macro.
std::string RoffQuoted(const std::string& text);
// Paragraphs as the footers of our commands have them: indented lines stay as
// they are, others are filled.
std::string RoffProse(const std::string& text);

}  // namespace lockstep

#endif  // LOCKSTEP_COMMON_CLI_MAN_H_
