#include "common/cli/command.h"

#include <algorithm>
#include <ostream>
#include <sstream>
#include <type_traits>

namespace lockstep {
namespace {

template <typename T>
struct Held {
  using Type = T;
  static constexpr bool kMany = false;
};
template <typename T>
struct Held<std::optional<T>> : Held<T> {};
template <typename T>
struct Held<std::vector<T>> : Held<T> {
  static constexpr bool kMany = true;
};

template <typename T>
std::string NameOfType() {
  if (std::is_same_v<T, std::string>) return "TEXT";
  if (std::is_same_v<T, bool>) return "BOOLEAN";
  if (std::is_floating_point_v<T>) return "FLOAT";
  return std::is_unsigned_v<T> ? "UINT" : "INT";
}

}  // namespace

std::string WithDashes(std::string name) {
  std::replace(name.begin(), name.end(), '_', '-');
  return name;
}

void ShowDefault(Flag* flag) {
  std::visit(
      [flag](const auto& to) {
        using T = std::decay_t<decltype(to)>;
        if constexpr (std::is_pointer_v<T>) {
          using Value = std::remove_pointer_t<T>;
          if constexpr (std::is_same_v<Value, typename Held<Value>::Type>) {
            std::ostringstream text;
            text << *to;
            flag->default_text = text.str();
          }
        }
      },
      flag->target);
}

std::vector<std::string> Flag::Names() const {
  std::vector<std::string> all;
  std::istringstream in(names);
  for (std::string name; std::getline(in, name, ',');) all.push_back(name);
  return all;
}

bool Flag::HasName(std::string_view name) const {
  const std::vector<std::string> all = Names();
  return std::find(all.begin(), all.end(), WithDashes(std::string(name))) !=
         all.end();
}

bool Flag::IsHelp() const {
  const BuiltIn* const built_in = std::get_if<BuiltIn>(&target);
  return built_in && *built_in == BuiltIn::kHelp;
}

bool Flag::TakesValue() const {
  if (const BuiltIn* const built_in = std::get_if<BuiltIn>(&target)) {
    return *built_in == BuiltIn::kConfigFile;
  }
  if (std::holds_alternative<bool*>(target)) return value.taken_by_bool;
  return !std::holds_alternative<std::function<void()>>(target);
}

bool Flag::TakesMany() const {
  return std::visit(
      [](const auto& to) {
        using T = std::decay_t<decltype(to)>;
        return Held<std::remove_pointer_t<T>>::kMany;
      },
      target);
}

std::string Flag::TypeName() const {
  if (!TakesValue()) return "";
  if (!type.empty()) return type;
  return std::visit(
      [](const auto& to) -> std::string {
        using T = std::decay_t<decltype(to)>;
        if constexpr (!std::is_pointer_v<T>) return "TEXT";
        return NameOfType<typename Held<std::remove_pointer_t<T>>::Type>();
      },
      target);
}

Command::Command(std::string name, std::string description, std::string footer)
    : name(std::move(name)),
      description(std::move(description)),
      footer(std::move(footer)) {
  Add("-h,--help", BuiltIn::kHelp, "Print this help message and exit",
      NotInFile);
}

Flag* Command::AddFlag(const std::string& usage, FlagTarget target,
                       std::string help) {
  Flag& flag = flags.emplace_back();
  const size_t space = usage.find(' ');
  flag.names = usage.substr(0, space);
  if (space != std::string::npos) flag.type = usage.substr(space + 1);
  flag.target = std::move(target);
  flag.help = std::move(help);
  return &flag;
}

FlagGroup Command::Group(std::string heading) {
  return {this, std::move(heading)};
}

void Command::AddProgramFlags(ManualInfo info) {
  manual = std::move(info);
  Add("--version", BuiltIn::kVersion,
      "Display program version information and exit", NotInFile);
  Add("--help-man", BuiltIn::kManual, "Print the manual page for man(1)",
      NotInFile, Hidden);
}

int ParsedCommand::Print(std::string_view prefix, std::string_view hint,
                         std::ostream& out, std::ostream& err) const {
  out << text << std::flush;
  if (error.empty()) return 0;
  err << prefix << error << hint << std::endl;
  return 2;
}

const Flag* Command::Find(std::string_view name) const {
  const auto found =
      std::find_if(flags.begin(), flags.end(),
                   [&](const Flag& flag) { return flag.HasName(name); });
  return found == flags.end() ? nullptr : &*found;
}

const Command* Command::Child(std::string_view word) const {
  const auto found =
      std::find_if(children.begin(), children.end(), [&](const Command& child) {
        return child.name == word ||
               (!child.alias.empty() && child.alias == word);
      });
  return found == children.end() ? nullptr : &*found;
}

}  // namespace lockstep
