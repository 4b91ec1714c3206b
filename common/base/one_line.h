// Foreign text as part of one line.
#ifndef LOCKSTEP_COMMON_BASE_ONE_LINE_H_
#define LOCKSTEP_COMMON_BASE_ONE_LINE_H_

#include <string>
#include <string_view>

namespace lockstep {

// Returns `text` without characters that end a line or command a terminal. A
// newline becomes "\\n". Other control characters (also U+0080 to U+009F) and
// bytes that are not UTF-8 become their number, because terminals with one-byte
// characters take 0x80 to 0x9f for commands. A tab becomes a blank.
std::string OneLine(std::string_view text);

}  // namespace lockstep

#endif  // LOCKSTEP_COMMON_BASE_ONE_LINE_H_
