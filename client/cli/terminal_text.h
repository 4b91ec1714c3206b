// Makes foreign text safe for a terminal. Escape sequences move the cursor,
// change the title or answer for the user; direction marks make a line read as
// another one (https://trojansource.codes).
#ifndef LOCKSTEP_CLIENT_CLI_TERMINAL_TEXT_H_
#define LOCKSTEP_CLIENT_CLI_TERMINAL_TEXT_H_

#include <string>
#include <string_view>

namespace lockstep::cli {

// Shows control characters, also U+0080 to U+009F, and direction marks as
// "\x1b", "\u202e". Newlines and tabs stay; a carriage return at the end of a
// line is removed. If `colors`, colours ("\x1b[1;31m") stay and end with the
// text.
std::string TerminalText(std::string_view text, bool colors);

}  // namespace lockstep::cli

#endif  // LOCKSTEP_CLIENT_CLI_TERMINAL_TEXT_H_
