// Text of others on a terminal: it may show itself, and nothing else. Escape
// sequences move the cursor, change the title or answer for the user; marks of
// direction make a line read as another one (https://trojansource.codes).
#ifndef LOCKSTEP_CLIENT_CLI_TERMINAL_TEXT_H_
#define LOCKSTEP_CLIENT_CLI_TERMINAL_TEXT_H_

#include <string>
#include <string_view>

namespace lockstep {

// Control characters, also U+0080 to U+009F, and marks of direction as
// "\x1b", "\u202e". Newlines and tabs stay; a carriage return at the end of a
// line goes. Colours ("\x1b[1;31m") stay where
// `colors`, and then end with the text.
std::string TerminalText(std::string_view text, bool colors);

}  // namespace lockstep

#endif  // LOCKSTEP_CLIENT_CLI_TERMINAL_TEXT_H_
