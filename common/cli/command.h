// The command line of a program as a value: its commands and their flags.
// Parsing, --help, the manual page, completion and configuration files all use
// this one description.
//
//   Command command("wait", "Follow a job to its end", "Example:\n  ...");
//   command.Add("name JOB", &options->name, "The job", Required);
//   command.Add("-q,--quiet", &options->quiet, "Only the end");
//   const ParsedCommand parsed = Parse(command, argc, argv);
#ifndef LOCKSTEP_COMMON_CLI_COMMAND_H_
#define LOCKSTEP_COMMON_CLI_COMMAND_H_

#include <cstdint>
#include <functional>
#include <iosfwd>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "common/base/status.h"

namespace lockstep {

// Flags that Parse itself handles.
enum class BuiltIn { kHelp, kVersion, kManual, kConfigFile };

// The variable that a flag sets, which must outlive the parsing. A function is
// called when the flag is given, with its value if it takes one.
using FlagTarget =
    std::variant<BuiltIn, bool*, int32_t*, int64_t*, uint64_t*, double*,
                 std::string*, std::vector<int32_t>*, std::vector<std::string>*,
                 std::optional<int32_t>*, std::optional<int64_t>*,
                 std::optional<uint64_t>*, std::optional<double>*,
                 std::optional<std::string>*, std::function<void()>,
                 std::function<void(const std::string&)>>;

// Returns the fault of a value, or an empty string.
using FlagCheck = std::function<std::string(const std::string&)>;

// The smallest and the largest value.
using FlagRange =
    std::variant<std::monostate, std::pair<int, int>,
                 std::pair<uint64_t, uint64_t>, std::pair<double, double>>;

// What a flag's value may be, and how it is read.
struct FlagValue {
  std::vector<std::string> one_of;
  std::vector<FlagCheck> checks;
  FlagRange range;
  char delimiter = '\0';
  bool any_case = false;
  bool is_size = false;
  bool is_time = false;
  bool not_negative = false;
  bool taken_by_bool = false;
  bool is_optional = false;
};

struct Flag {
  // "-q,--quiet". A name without dashes makes it a positional argument. A
  // command line or file may write "_" for each "-" inside a long name.
  std::string names;
  // "FILE". If it is empty, the type of the target decides (see TypeName).
  std::string type;
  FlagTarget target;
  FlagValue value;
  std::string help;

  // The section of --help that lists it. If it is empty: "Options".
  std::string heading;
  std::string default_text;
  // The environment variable that is read if the flag is not given.
  std::string variable;
  // Flags that must not be given together with it.
  std::vector<std::string> excludes;
  // If it is not null, Parse stores there whether the flag was given.
  bool* given = nullptr;
  bool required = false;
  bool hidden = false;
  bool configurable = true;
  bool may_repeat = false;

  // Returns for example {"-q", "--quiet"}.
  std::vector<std::string> Names() const;
  // Accepts "_" for "-", as in "--log-level".
  bool HasName(std::string_view name) const;
  bool IsPositional() const { return names[0] != '-'; }
  bool IsHelp() const;
  bool TakesValue() const;
  // It takes any number of values.
  bool TakesMany() const;
  // Returns `type`, or else INT, UINT, FLOAT, TEXT or BOOLEAN by the target.
  // Returns an empty string if the flag takes no value.
  std::string TypeName() const;
};

// Settings of a flag, for Command::Add. FlagSetting holds any of them.
using FlagSetting = std::function<void(Flag*)>;

inline void Required(Flag* flag) { flag->required = true; }
inline void AnyCase(Flag* flag) { flag->value.any_case = true; }
// It may be given several times, each time with one value.
inline void MayRepeat(Flag* flag) { flag->may_repeat = true; }
// It is accepted, but neither documented nor completed.
inline void Hidden(Flag* flag) { flag->hidden = true; }
// A configuration file must not set it.
inline void NotInFile(Flag* flag) { flag->configurable = false; }
// The value is a number of bytes, or has a unit as in 16GiB.
inline void AsSize(Flag* flag) { flag->value.is_size = true; }
// The value must have a unit, as in 30d or 12h; the target gets seconds.
inline void AsTime(Flag* flag) { flag->value.is_time = true; }
inline void NotNegative(Flag* flag) { flag->value.not_negative = true; }
// A bool takes a value, such as "1" or "false".
inline void WithValue(Flag* flag) { flag->value.taken_by_bool = true; }
// Given without a value, it has its default.
inline void ValueOptional(Flag* flag) { flag->value.is_optional = true; }
// --help shows the present value of the target as the default.
void ShowDefault(Flag* flag);

// Sets one field of a flag.
template <typename T>
struct FieldSetting {
  T Flag::*field;
  T value;
  void operator()(Flag* flag) const { flag->*field = value; }
};
template <typename T>
struct ValueSetting {
  T FlagValue::*field;
  T value;
  void operator()(Flag* flag) const { flag->value.*field = value; }
};
inline FieldSetting<bool> HiddenIf(bool value) {
  return {&Flag::hidden, value};
}
inline FieldSetting<bool*> SetsGiven(bool* given) {
  return {&Flag::given, given};
}
inline ValueSetting<char> SplitAt(char delimiter) {
  return {&FlagValue::delimiter, delimiter};
}
inline FieldSetting<std::string> WithDefault(std::string text) {
  return {&Flag::default_text, std::move(text)};
}
inline FieldSetting<std::string> OrVariable(std::string name) {
  return {&Flag::variable, std::move(name)};
}
inline ValueSetting<std::vector<std::string>> OneOf(
    std::vector<std::string> values) {
  return {&FlagValue::one_of, std::move(values)};
}
inline FieldSetting<std::vector<std::string>> Excludes(
    std::vector<std::string> others) {
  return {&Flag::excludes, std::move(others)};
}
template <typename T>
ValueSetting<FlagRange> InRange(T least, T most) {
  return {&FlagValue::range, std::pair(least, most)};
}
inline FlagSetting Checked(FlagCheck check) {
  return [=](Flag* flag) { flag->value.checks.push_back(check); };
}

inline bool IsLongName(std::string_view name) { return name.starts_with("--"); }
// Returns the name with "-" for each "_": "--log-level" for "--log-level".
std::string WithDashes(std::string name);

// What the manual page says about a program besides its commands.
struct ManualInfo {
  // 1 is for users' programs, 8 for daemons.
  int section = 1;
  std::string version;
  // Flags whose heading begins with this are described once, in a section of
  // their own, and not with each command. If it is empty, there are none.
  std::string shared_heading;
  // Other pages, as in "lockstep(1)".
  std::vector<std::string> see_also;
};

// One entry of a configuration file: the name of a flag without its dashes, and
// its values.
struct ConfigItem {
  std::string name;
  std::vector<std::string> values;
};

struct FlagGroup;

struct Command {
  // Every command has --help.
  Command(std::string name, std::string description, std::string footer = "");

  // `usage` holds the names and perhaps the type, as --help shows them:
  // "-n,--frames N", "--wait", "name JOB". The reference is valid until the
  // next call.
  template <typename... Settings>
  Flag& Add(const std::string& usage, FlagTarget target, std::string help,
            const Settings&... settings) {
    Flag* const flag = AddFlag(usage, std::move(target), std::move(help));
    (settings(flag), ...);
    return *flag;
  }
  FlagGroup Group(std::string heading);
  // Adds --version, and a hidden --help-man that prints the manual page.
  void AddProgramFlags(ManualInfo info);

  // Finds a flag by "-q" or "--quiet". Returns null if there is none.
  const Flag* Find(std::string_view name) const;
  // Finds a child by its name or alias. Returns null if there is none.
  const Command* Child(std::string_view word) const;

  std::string name;
  std::string alias;
  std::string description;
  // --help prints it below the flags.
  std::string footer;
  std::vector<Flag> flags;
  // If there are any, the command line must name one of them.
  std::vector<Command> children;
  // Runs a command without children, and returns its exit code.
  std::function<StatusOr<int>()> run;

  ManualInfo manual;
  // Reads the file of --config (common/config/config_file.h).
  std::function<StatusOr<std::vector<ConfigItem>>(const std::string& path,
                                                  std::istream& in)>
      read_config;
  // A flag that is given again replaces the earlier value, where otherwise it
  // is an error. Lists grow in either case.
  bool last_wins = false;

 private:
  Flag* AddFlag(const std::string& usage, FlagTarget target, std::string help);
};

// Adds flags under one heading to a command, which must outlive the group.
struct FlagGroup {
  Command* command;
  std::string heading;

  template <typename... Settings>
  Flag& Add(const std::string& usage, FlagTarget target, std::string help,
            const Settings&... settings) const {
    return command->Add(usage, std::move(target), std::move(help),
                        FieldSetting<std::string>{&Flag::heading, heading},
                        settings...);
  }
};

inline constexpr char kRunWithHelp[] =
    "\nRun with --help for more information.";

// The outcome of parsing a command line.
struct ParsedCommand {
  // The command to run; it points into the description that was parsed. It is
  // null if there is an error, or a text to print instead.
  const Command* command = nullptr;
  // Why the command line is wrong.
  std::string error;
  // What --help, --version or --help-man asks for.
  std::string text;

  // For a null `command`: prints the text to `out`, or the error to `err`
  // between `prefix` and `hint`. Returns the exit code: 0, or 2 for an error.
  int Print(std::string_view prefix, std::string_view hint, std::ostream& out,
            std::ostream& err) const;
};
// `args` are the arguments without the program's name. It sets the targets of
// the flags that were given.
ParsedCommand Parse(const Command& root, std::vector<std::string> args);
ParsedCommand Parse(const Command& root, int argc, char** argv);

}  // namespace lockstep

#endif  // LOCKSTEP_COMMON_CLI_COMMAND_H_
