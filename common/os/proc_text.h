// Takes the files of /proc and /sys apart. Pure.
#ifndef LOCKSTEP_COMMON_OS_PROC_TEXT_H_
#define LOCKSTEP_COMMON_OS_PROC_TEXT_H_

#include <algorithm>
#include <string_view>

namespace lockstep {

// Removes the next word from `text` and returns it; empty at the end.
inline std::string_view TakeWord(std::string_view* text) {
  const size_t begin = std::min(text->find_first_not_of(" \t\n"), text->size());
  const size_t end =
      std::min(text->find_first_of(" \t\n", begin), text->size());
  const std::string_view word = text->substr(begin, end - begin);
  text->remove_prefix(end);
  return word;
}

// Removes the next line from `text` and returns it without its end.
inline std::string_view TakeLine(std::string_view* text) {
  const size_t end = std::min(text->find('\n'), text->size());
  const std::string_view line = text->substr(0, end);
  text->remove_prefix(std::min(end + 1, text->size()));
  return line;
}

}  // namespace lockstep

#endif  // LOCKSTEP_COMMON_OS_PROC_TEXT_H_
