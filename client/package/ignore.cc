#include "client/package/ignore.h"

namespace lockstep::cli {
namespace {

constexpr std::string_view kInclude = "#!include:";
constexpr std::string_view kDefaults =
    ".git\n.gitignore\n.gcloudignore\n.hg\n.svn\n__pycache__/\n*.pyc\n";

// Calls `take` with each line, without "\r".
template <typename Take>
void ForEachLine(std::string_view text, const Take& take) {
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    std::string_view line = text.substr(begin, end - begin);
    if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
    take(line);
    begin = end + 1;
  }
}

// Removes trailing blanks, unless "\" precedes them.
std::string_view TrimEnd(std::string_view line) {
  while (!line.empty() && line.back() == ' ' &&
         (line.size() < 2 || line[line.size() - 2] != '\\')) {
    line.remove_suffix(1);
  }
  return line;
}

// True if `c` is in the class that begins at pattern[*at] == '['. Moves *at
// past it. An unterminated class is the character "[".
bool InClass(std::string_view pattern, size_t* at, char c) {
  size_t i = *at + 1;
  const bool negated =
      i < pattern.size() && (pattern[i] == '!' || pattern[i] == '^');
  if (negated) ++i;
  bool found = false;
  for (const size_t first = i; i < pattern.size(); ++i) {
    if (pattern[i] == ']' && i > first) {
      *at = i + 1;
      return found != negated;
    }
    if (pattern[i] == '\\' && i + 1 < pattern.size()) ++i;
    const char low = pattern[i];
    char high = low;
    if (i + 2 < pattern.size() && pattern[i + 1] == '-' &&
        pattern[i + 2] != ']') {
      high = pattern[i + 2];
      i += 2;
    }
    found |= low <= c && c <= high;
  }
  const bool is_bracket = c == '[';
  ++*at;
  return is_bracket;
}

}  // namespace

bool MatchesGlob(std::string_view pattern, std::string_view text) {
  size_t p = 0;
  size_t t = 0;
  while (p < pattern.size()) {
    // "**/" at the beginning or after a slash; "/**" at the end.
    if (pattern.substr(p, 2) == "**" && (p == 0 || pattern[p - 1] == '/')) {
      const std::string_view rest = pattern.substr(p + 2);
      if (rest.empty()) return t < text.size();
      if (rest[0] == '/') {
        for (size_t from = t;;) {
          if (MatchesGlob(rest.substr(1), text.substr(from))) return true;
          from = text.find('/', from);
          if (from == text.npos) return false;
          ++from;
        }
      }
    }
    if (pattern[p] == '*') {
      while (p < pattern.size() && pattern[p] == '*') ++p;
      for (size_t from = t;; ++from) {
        if (MatchesGlob(pattern.substr(p), text.substr(from))) return true;
        if (from >= text.size() || text[from] == '/') return false;
      }
    }
    if (t >= text.size()) return false;
    const char c = text[t++];
    if (pattern[p] == '?') {
      if (c == '/') return false;
      ++p;
    } else if (pattern[p] == '[') {
      if (c == '/' || !InClass(pattern, &p, c)) return false;
    } else {
      if (pattern[p] == '\\' && p + 1 < pattern.size()) ++p;
      if (pattern[p++] != c) return false;
    }
  }
  return t == text.size();
}

IgnoreRules IgnoreRules::Default() {
  IgnoreRules rules;
  rules.Add(kDefaults);
  return rules;
}

std::vector<std::string> IgnoreRules::Includes(std::string_view text) {
  std::vector<std::string> names;
  ForEachLine(text, [&](std::string_view line) {
    line = TrimEnd(line);
    if (line.starts_with(kInclude)) {
      names.emplace_back(line.substr(kInclude.size()));
    }
  });
  return names;
}

void IgnoreRules::Add(std::string_view text) {
  ForEachLine(text, [&](std::string_view line) {
    line = TrimEnd(line);
    if (line.empty() || line[0] == '#') return;
    Rule rule;
    rule.negated = line[0] == '!';
    if (rule.negated) line.remove_prefix(1);
    rule.directories_only = line.ends_with('/');
    while (line.ends_with('/')) line.remove_suffix(1);
    rule.anchored = line.find('/') != line.npos;
    if (line.starts_with('/')) line.remove_prefix(1);
    if (line.empty()) return;
    rule.pattern = line;
    rules_.push_back(std::move(rule));
  });
}

bool IgnoreRules::Ignores(std::string_view path, bool is_directory) const {
  const std::string_view name = path.substr(path.rfind('/') + 1);
  for (auto rule = rules_.rbegin(); rule != rules_.rend(); ++rule) {
    if (rule->directories_only && !is_directory) continue;
    if (MatchesGlob(rule->pattern, rule->anchored ? path : name)) {
      return !rule->negated;
    }
  }
  return false;
}

}  // namespace lockstep::cli
