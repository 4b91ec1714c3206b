// The manual page of a program, made of the same description as its --help.
// Pure.
#ifndef LOCKSTEP_COMMON_CLI_MAN_H_
#define LOCKSTEP_COMMON_CLI_MAN_H_

#include <string>

#include "common/cli/command.h"

namespace lockstep {

// Describes `root` and all its commands, for man(1).
std::string ManualPage(const Command& root);

// Escapes text so that roff shows it unchanged.
std::string RoffText(const std::string& text);
// Quotes text as one argument of a macro.
std::string RoffQuoted(const std::string& text);
// Formats paragraphs such as the footer of a command: indented lines stay as
// they are, other lines are filled.
std::string RoffProse(const std::string& text);

}  // namespace lockstep

#endif  // LOCKSTEP_COMMON_CLI_MAN_H_
