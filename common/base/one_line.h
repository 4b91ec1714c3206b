// Text of others as a part of one line of ours.
#ifndef LOCKSTEP_COMMON_BASE_ONE_LINE_H_
#define LOCKSTEP_COMMON_BASE_ONE_LINE_H_

#include <string>
#include <string_view>

namespace lockstep {

// `text` without what would end a line or be a command to a terminal: a newline
// is shown as "\\n", other control characters (also U+0080 to U+009F) by their
// number, and so is each byte that is not UTF-8: terminals of one byte a
// character take 0x80 to 0x9f for commands. A tab is a blank.
std::string OneLine(std::string_view text);

}  // namespace lockstep

#endif  // LOCKSTEP_COMMON_BASE_ONE_LINE_H_
