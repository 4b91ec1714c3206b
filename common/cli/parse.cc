// Parses with CLI11, which no other file includes.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <map>
#include <memory>
#include <sstream>
#include <type_traits>

#include "common/cli/command.h"
#include "common/cli/man.h"

namespace lockstep {
namespace {

// Thrown for --help-man.
struct CallForManual : CLI::Success {};

class ConfigFile final : public CLI::Config {
 public:
  ConfigFile(const CLI::App* app, const Command* command)
      : app_(app), command_(command) {}

  std::string to_config(const CLI::App*, bool, bool,
                        std::string) const override {
    return "";
  }

  std::vector<CLI::ConfigItem> from_config(std::istream& in) const override {
    auto read =
        command_->read_config(app_->get_config_ptr()->as<std::string>(), in);
    if (!read.ok()) throw CLI::ConfigError(Message(read.status()));
    std::vector<CLI::ConfigItem> items;
    for (ConfigItem& item : *read) {
      CLI::ConfigItem& out = items.emplace_back();
      out.name = std::move(item.name);
      out.inputs = std::move(item.values);
    }
    return items;
  }

 private:
  const CLI::App* const app_;
  const Command* const command_;
};

// Returns the names of a flag for CLI11: "--a-b,--a_b" for "--a-b".
std::string Spellings(const Flag& flag) {
  std::string all = flag.names;
  for (std::string name : flag.Names()) {
    if (!IsLongName(name)) continue;
    std::replace(name.begin() + 2, name.end(), '-', '_');
    if (name.find('_') != std::string::npos) all += "," + name;
  }
  return all;
}

// --help leaves out the spellings with "_".
class HelpText final : public CLI::Formatter {
 public:
  std::string make_option_name(const CLI::Option* option,
                               bool is_positional) const override {
    std::istringstream in(
        CLI::Formatter::make_option_name(option, is_positional));
    std::string shown;
    for (std::string name; std::getline(in, name, ',');) {
      if (IsLongName(name) && name.find('_') != std::string::npos) continue;
      shown += (shown.empty() ? "" : ",") + name;
    }
    return shown;
  }
};

// Translates a description to CLI11, and keeps pointers into it.
class Translation {
 public:
  explicit Translation(const Command& root)
      : app_(root.description, root.name) {
    app_.formatter(std::make_shared<HelpText>());
    Describe(root, &app_);
  }

  CLI::App* app() { return &app_; }
  // Stores which flags were given. Call it after parsing.
  void SetGiven() const {
    for (const auto& [flag, option] : options_) {
      if (flag->given) *flag->given = option->count() > 0;
    }
  }

 private:
  void Describe(const Command& command, CLI::App* app) {
    app->footer(command.footer);
    if (!command.alias.empty()) app->alias(command.alias);
    if (command.last_wins) {
      app->option_defaults()->multi_option_policy(
          CLI::MultiOptionPolicy::TakeLast);
    }
    for (const Flag& flag : command.flags) {
      CLI::Option* const option = AddOption(command, flag, app);
      options_.emplace_back(&flag, option);
      Settle(flag, option);
      Check(flag.value, option);
      if (command.last_wins && flag.TakesMany()) {
        option->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
      }
      for (const std::string& other : flag.excludes) {
        option->excludes(app->get_option(other));
      }
    }
    for (const Command& child : command.children) {
      Describe(child, app->add_subcommand(child.name, child.description));
    }
    if (!command.children.empty()) app->require_subcommand(1);
  }

  static CLI::Option* AddBuiltIn(const Command& command, const Flag& flag,
                                 BuiltIn what, CLI::App* app) {
    switch (what) {
      case BuiltIn::kHelp:
        return app->set_help_flag(Spellings(flag), flag.help);
      case BuiltIn::kVersion:
        return app->set_version_flag(
            Spellings(flag), command.name + " " + command.manual.version,
            flag.help);
      case BuiltIn::kManual:
        return app->add_flag_callback(
            Spellings(flag), [] { throw CallForManual(); }, flag.help);
      case BuiltIn::kConfigFile:
        break;
    }
    app->config_formatter(std::make_shared<ConfigFile>(app, &command));
    return app->set_config(Spellings(flag), "", flag.help)->expected(1);
  }

  static CLI::Option* AddOption(const Command& command, const Flag& flag,
                                CLI::App* app) {
    return std::visit(
        [&](const auto& to) -> CLI::Option* {
          using T = std::decay_t<decltype(to)>;
          if constexpr (std::is_same_v<T, BuiltIn>) {
            return AddBuiltIn(command, flag, to, app);
          } else if constexpr (std::is_same_v<T, std::function<void()>>) {
            return app->add_flag_callback(Spellings(flag), to, flag.help);
          } else if constexpr (!std::is_pointer_v<T>) {
            return app->add_option_function<std::string>(Spellings(flag), to,
                                                         flag.help);
          } else {
            if constexpr (std::is_same_v<T, bool*>) {
              if (!flag.value.taken_by_bool) {
                return app->add_flag(Spellings(flag), *to, flag.help);
              }
            }
            return app->add_option(Spellings(flag), *to, flag.help);
          }
        },
        flag.target);
  }

  static void Settle(const Flag& flag, CLI::Option* option) {
    if (flag.hidden) {
      option->group("");
    } else if (!flag.heading.empty()) {
      option->group(flag.heading);
    }
    if (!flag.type.empty()) option->type_name(flag.type);
    if (flag.may_repeat) option->take_all()->allow_extra_args(false);
    if (flag.value.is_optional) option->expected(0, 1);
    if (flag.value.delimiter != '\0') {
      option->delimiter(flag.value.delimiter);
    }
    if (!flag.default_text.empty()) option->default_str(flag.default_text);
    if (!flag.variable.empty()) option->envname(flag.variable);
    if (flag.required) option->required();
    if (!flag.configurable) option->configurable(false);
  }

  static void Check(const FlagValue& value, CLI::Option* option) {
    if (value.is_size) option->transform(CLI::AsSizeValue(false));
    if (value.is_time) {
      const std::map<std::string, double> seconds = {
          {"s", 1}, {"m", 60}, {"h", 3600}, {"d", 86400}};
      option->transform(
          CLI::AsNumberWithUnit(seconds, CLI::AsNumberWithUnit::UNIT_REQUIRED));
    }
    if (value.not_negative) {
      // CLI11 applies the transformation that is added last first.
      option->transform(CLI::Validator(
          [](const std::string& text) {
            return text.starts_with('-') ? text + " must not be negative" : "";
          },
          ""));
    }
    for (const FlagCheck& check : value.checks) option->check(check);
    std::visit(
        [&](const auto& range) {
          if constexpr (!std::is_same_v<std::decay_t<decltype(range)>,
                                        std::monostate>) {
            option->check(CLI::Range(range.first, range.second));
          }
        },
        value.range);
    if (value.one_of.empty()) return;
    if (value.any_case) {
      option->check(CLI::IsMember(value.one_of, CLI::ignore_case));
    } else {
      option->check(CLI::IsMember(value.one_of));
    }
  }

  CLI::App app_;
  std::vector<std::pair<const Flag*, CLI::Option*>> options_;
};

}  // namespace

ParsedCommand Parse(const Command& root, std::vector<std::string> args) {
  Translation translation(root);
  CLI::App* app = translation.app();
  // CLI11 takes the arguments in reverse order.
  std::reverse(args.begin(), args.end());
  ParsedCommand parsed;
  try {
    app->parse(args);
    translation.SetGiven();
    parsed.command = &root;
    while (!app->get_subcommands().empty()) {
      app = app->get_subcommands().front();
      parsed.command = parsed.command->Child(app->get_name());
    }
  } catch (const CLI::CallForHelp&) {
    parsed.text = app->help();
  } catch (const CLI::CallForVersion& version) {
    parsed.text = std::string(version.what()) + "\n";
  } catch (const CallForManual&) {
    parsed.text = ManualPage(root);
  } catch (const CLI::ParseError& error) {
    parsed.error = error.what();
  }
  return parsed;
}

ParsedCommand Parse(const Command& root, int argc, char** argv) {
  return Parse(root, std::vector<std::string>(argv + 1, argv + argc));
}

}  // namespace lockstep
