// The command line of a program as a value: its commands and their flags.
// Parsing, --help, the manual page, completion and configuration files all read
// this one description.
//
//   Command command("wait", "Follow a job to its end", "Example:\n  ...");
//   command.Add("name JOB", &options->name, "The job").Required();
//   command.Add("-q,--quiet", &options->quiet, "Only the end");
//   const ParsedCommand parsed = Parse(command, argc, argv);
#ifndef LOCKSTEP_COMMON_CLI_COMMAND_H_
#define LOCKSTEP_COMMON_CLI_COMMAND_H_

#include <cstdint>
#include <functional>
#include <istream>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "common/base/status.h"

namespace lockstep {

// What Parse itself does something about.
enum class BuiltIn { kHelp, kVersion, kManual, kConfigFile };

// What a flag sets; it outlives the parsing. A function is called when the flag
// is there, with its value where it takes one.
using FlagTarget =
    std::variant<BuiltIn, bool*, int32_t*, int64_t*, uint64_t*, double*,
                 std::string*, std::vector<int32_t>*, std::vector<std::string>*,
                 std::optional<int32_t>*, std::optional<int64_t>*,
                 std::optional<uint64_t>*, std::optional<double>*,
                 std::optional<std::string>*, std::function<void()>,
                 std::function<void(const std::string&)>>;

// What is wrong with a value; empty: nothing.
using FlagCheck = std::function<std::string(const std::string&)>;

struct Flag {
  // "-q,--quiet". Without dashes it is an argument that has its place.
  std::string names;
  // "FILE"; empty: what the target's type is called.
  std::string type;
  FlagTarget target;
  std::string help;

  // The heading that --help has above it; empty: the usual one.
  std::string heading;
  std::string default_text;
  // The variable that is read where the flag is not there.
  std::string variable;
  std::vector<std::string> one_of;
  // The names of flags that it does not go with.
  std::vector<std::string> excludes;
  std::vector<FlagCheck> checks;
  std::variant<std::monostate, std::pair<int, int>,
               std::pair<uint64_t, uint64_t>, std::pair<double, double>>
      range;
  // Set to whether the flag is there.
  bool* given = nullptr;
  char delimiter = '\0';
  bool required = false;
  bool hidden = false;
  bool configurable = true;
  bool any_case = false;
  bool is_repeated = false;
  bool is_size = false;
  bool is_time = false;
  bool not_negative = false;
  bool bool_takes_value = false;
  bool value_is_optional = false;

  Flag& Required() { return Set(&Flag::required, true); }
  // Says `text`, or what the target is now, in --help.
  Flag& Default(std::string text) {
    return Set(&Flag::default_text, std::move(text));
  }
  Flag& ShowDefault();
  Flag& OneOf(std::vector<std::string> values) {
    return Set(&Flag::one_of, std::move(values));
  }
  Flag& AnyCase() { return Set(&Flag::any_case, true); }
  template <typename T>
  Flag& Range(T least, T most) {
    range = std::pair<T, T>(least, most);
    return *this;
  }
  Flag& Check(FlagCheck check) {
    checks.push_back(std::move(check));
    return *this;
  }
  Flag& Excludes(std::vector<std::string> others) {
    return Set(&Flag::excludes, std::move(others));
  }
  // A value is a list, cut at this.
  Flag& Delimiter(char c) { return Set(&Flag::delimiter, c); }
  // It may be there several times, each time with one value.
  Flag& Repeated() { return Set(&Flag::is_repeated, true); }
  Flag& Given(bool* value) { return Set(&Flag::given, value); }
  // Taken, but told nowhere.
  Flag& Hidden(bool value = true) { return Set(&Flag::hidden, value); }
  // Not for a configuration file.
  Flag& NotConfigurable() { return Set(&Flag::configurable, false); }
  Flag& OrVariable(std::string name) {
    return Set(&Flag::variable, std::move(name));
  }
  // Bytes, or as 16GiB.
  Flag& Size() { return Set(&Flag::is_size, true); }
  // Seconds in the target, and always a unit in the text: 30d, 12h.
  Flag& Time() { return Set(&Flag::is_time, true); }
  Flag& NotNegative() { return Set(&Flag::not_negative, true); }
  // Of a bool: "1" or "false" follows.
  Flag& BoolWithValue() { return Set(&Flag::bool_takes_value, true); }
  // Without one the value is the default.
  Flag& ValueOptional() { return Set(&Flag::value_is_optional, true); }

  // "-q", "--quiet".
  std::vector<std::string> Names() const;
  bool HasName(std::string_view name) const;
  bool IsPositional() const { return names[0] != '-'; }
  bool IsHelp() const;
  bool TakesValue() const;
  // It takes any number of values.
  bool TakesMany() const;
  // `type`, or by the target: INT, UINT, FLOAT, TEXT, BOOLEAN; empty where it
  // takes no value.
  std::string TypeName() const;

 private:
  template <typename T>
  Flag& Set(T Flag::*field, T value) {
    this->*field = std::move(value);
    return *this;
  }
};

inline bool IsLongName(std::string_view name) { return name.starts_with("--"); }

// Of a program.
struct ManualInfo {
  // 1: users' programs; 8: daemons.
  int section = 1;
  std::string version;
  // Flags under a heading that begins with this are told once, at the end,
  // and not with each command; empty: none.
  std::string shared_heading;
  // Other pages, as "lockstep(1)".
  std::vector<std::string> see_also;
};

// A flag's name without dashes, and its values, out of a file.
struct ConfigItem {
  std::string name;
  std::vector<std::string> values;
};

struct FlagGroup;

struct Command {
  // It has --help.
  Command(std::string name, std::string description, std::string footer = "");

  // As --help says it: "-n,--frames N", "--wait", "name JOB", where the type N
  // may be left out. The reference lasts until the next call.
  Flag& Add(const std::string& usage, FlagTarget target, std::string help);
  FlagGroup Group(std::string heading);
  // --version, and a hidden --help-man.
  void AddProgramFlags(ManualInfo info);

  // By "-q" or "--quiet". Null: there is none.
  const Flag* Find(std::string_view name) const;
  // By its name or alias. Null: there is none.
  const Command* Child(std::string_view word) const;

  std::string name;
  std::string alias;
  std::string description;
  // Below the flags in --help.
  std::string footer;
  std::vector<Flag> flags;
  // Where there are some, one of them must be named.
  std::vector<Command> children;
  // Returns an exit code. Of commands without children.
  std::function<StatusOr<int>()> run;

  ManualInfo manual;
  // Of --config (common/config/config_file.h).
  std::function<StatusOr<std::vector<ConfigItem>>(const std::string& path,
                                                  std::istream& in)>
      read_config;
  // A flag that is there again replaces what was there before; else it is
  // refused. Lists grow.
  bool last_wins = false;
};

// Adds flags under one heading to a command, which outlives it.
struct FlagGroup {
  Command* command;
  std::string heading;

  Flag& Add(const std::string& usage, FlagTarget target,
            std::string help) const;
};

// What came of a command line.
struct ParsedCommand {
  // Points into what was parsed. Null: there is nothing to be done, for one of
  // the following.
  const Command* command = nullptr;
  // Wrong usage.
  std::string error;
  // --help, --version or the manual page was asked for: for stdout.
  std::string text;

  // Where `command` is null: writes what is to be said, an error behind
  // `prefix`. Returns the exit code, 0 or 2.
  int Tell(std::string_view prefix, std::ostream& out, std::ostream& err) const;
};
// `args` are those behind the program's name.
ParsedCommand Parse(const Command& root, std::vector<std::string> args);
ParsedCommand Parse(const Command& root, int argc, char** argv);

}  // namespace lockstep

#endif  // LOCKSTEP_COMMON_CLI_COMMAND_H_
