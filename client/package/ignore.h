// Selects files of a folder to leave out, by the rules of .gcloudignore, which
// are those of .gitignore(5). Pure.
//
//   # a comment           *.pyc        any file or folder of this name
//   /data                 data at the top only
//   logs/                 folders only
//   !keep.log             include again
//   a/**/b                "**": any number of folders
//   #!include:.gitignore  insert the rules of another file
//
// The last matching rule decides. Files in an excluded folder cannot be
// included again.
#ifndef LOCKSTEP_CLIENT_PACKAGE_IGNORE_H_
#define LOCKSTEP_CLIENT_PACKAGE_IGNORE_H_

#include <string>
#include <string_view>
#include <vector>

namespace lockstep::cli {

class IgnoreRules {
 public:
  // The rules for a folder without .gcloudignore, and before its rules
  // otherwise: version control and files that Python generates.
  static IgnoreRules Default();

  // Appends the rules of `text`.
  void Add(std::string_view text);
  // Returns the names after "#!include:", in order.
  static std::vector<std::string> Includes(std::string_view text);

  // `path` is relative to the folder: "a/b/c".
  bool Ignores(std::string_view path, bool is_directory) const;

 private:
  struct Rule {
    std::string pattern;
    bool negated = false;
    bool directories_only = false;
    // Matches the whole path, not just the name.
    bool anchored = false;
  };
  std::vector<Rule> rules_;
};

// True if `text` matches `pattern`: "*" and "?" match anything except "/",
// "[a-z]" and "[!a]" are sets, "\" escapes a character, "**" between slashes
// matches any number of folders.
bool MatchesGlob(std::string_view pattern, std::string_view text);

}  // namespace lockstep::cli

#endif  // LOCKSTEP_CLIENT_PACKAGE_IGNORE_H_
