// Which files of a folder are left out: the rules of .gcloudignore, which are
// those of .gitignore(5). Pure.
//
//   # a comment           *.pyc        any file or folder of this name
//   /data                 data at the top only
//   logs/                 folders only
//   !keep.log             not left out after all
//   a/**/b                "**": any number of folders
//   #!include:.gitignore  the rules of another file stand here
//
// The last rule that matches decides. What lies in a folder that is left out
// cannot be taken back.
#ifndef LOCKSTEP_CLIENT_PACKAGE_IGNORE_H_
#define LOCKSTEP_CLIENT_PACKAGE_IGNORE_H_

#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

class IgnoreRules {
 public:
  // Of a folder without .gcloudignore, and before its rules otherwise: version
  // control and what Python makes by itself.
  static IgnoreRules Default();

  // The rules of `text`, after those that are there.
  void Add(std::string_view text);
  // The names behind "#!include:", in their order.
  static std::vector<std::string> Includes(std::string_view text);

  // `path` is "a/b/c" below the folder.
  bool Ignores(std::string_view path, bool is_directory) const;

 private:
  struct Rule {
    std::string pattern;
    bool negated = false;
    bool directories_only = false;
    // Matched against the whole path, not against the name alone.
    bool anchored = false;
  };
  std::vector<Rule> rules_;
};

// Whether `text` is what `pattern` says: "*" and "?" any but "/", "[a-z]",
// "[!a]", "\" before a character that means itself, "**" between slashes any
// number of folders.
bool MatchesGlob(std::string_view pattern, std::string_view text);

}  // namespace lockstep

#endif  // LOCKSTEP_CLIENT_PACKAGE_IGNORE_H_
