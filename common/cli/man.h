// A program's manual page out of its options: the source of --help and of the
// page are one. Header only, as CLI11 is, for programs that share little else.
#ifndef LOCKSTEP_COMMON_CLI_MAN_H_
#define LOCKSTEP_COMMON_CLI_MAN_H_

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cctype>
#include <ostream>
#include <string>
#include <vector>

namespace lockstep {

struct ManInfo {
  // 1: users' programs; 8: daemons.
  int section = 1;
  std::string version;
  // Options of a group whose name begins with this are told once, at the end,
  // and not with each command; empty: none.
  std::string shared_group;
  // Other pages, as "lockstep(1)".
  std::vector<std::string> see_also;
};

namespace man_internal {

// Text as roff shows it unchanged.
inline std::string Escape(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '\\') {
      out += "\\e";
    } else if (c == '-') {
      out += "\\-";
    } else if ((c == '.' || c == '\'') && (out.empty() || out.back() == '\n')) {
      out += "\\&";
      out += c;
    } else {
      out += c;
    }
  }
  return out;
}

// An argument of a macro.
inline std::string Quoted(const std::string& text) {
  std::string out = "\"";
  for (const char c : Escape(text))
    out += c == '"' ? "\\(dq" : std::string(1, c);
  return out + "\"";
}

// Paragraphs as the footers of our commands have them: indented lines stay as
// they are, others are filled.
inline std::string Prose(const std::string& text) {
  std::string out;
  bool verbatim = false;
  bool blank = true;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    const std::string line = text.substr(begin, end - begin);
    begin = end + 1;
    const bool indented = line.compare(0, 2, "  ") == 0;
    if (verbatim && !indented) out += ".fi\n.RE\n";
    if (line.empty()) {
      blank = true;
    } else if (indented) {
      if (!verbatim) out += ".RS 4\n.nf\n";
      out += Escape(line.substr(2)) + "\n";
      blank = false;
    } else {
      if (blank || verbatim) out += ".PP\n";
      out += Escape(line) + "\n";
      blank = false;
    }
    verbatim = indented;
  }
  if (verbatim) out += ".fi\n.RE\n";
  return out;
}

// "FORMAT" of "FORMAT:{table,wide}"; empty for flags.
inline std::string TypeOf(const CLI::Option& option) {
  if (option.get_items_expected_max() == 0) return "";
  const std::string name = option.get_type_name();
  const std::string type = name.substr(0, name.find(':'));
  return type.empty() ? "VALUE" : type;
}

// "\fB\-o\fR, \fB\-\-output\-format\fR \fIFORMAT\fR".
inline std::string NamesOf(const CLI::Option& option) {
  std::string out;
  const auto add = [&](const std::string& name) {
    out += (out.empty() ? "" : ", ") + ("\\fB" + Escape(name)) + "\\fR";
  };
  for (const std::string& name : option.get_snames()) add("-" + name);
  // Of a second spelling with "_" nobody needs to read.
  for (const std::string& name : option.get_lnames()) {
    const bool spelled_twice =
        option.get_lnames().size() > 1 && name.find('_') != std::string::npos;
    if (!spelled_twice) add("--" + name);
  }
  const std::string type = TypeOf(option);
  if (out.empty()) return "\\fI" + Escape(option.get_name()) + "\\fR";
  if (!type.empty()) out += " \\fI" + Escape(type) + "\\fR";
  return out;
}

inline bool IsShared(const CLI::Option& option, const ManInfo& info) {
  return !info.shared_group.empty() &&
         option.get_group().compare(0, info.shared_group.size(),
                                    info.shared_group) == 0;
}

// `shared`: those of the shared group, else the others.
inline std::string OptionList(const CLI::App& app, const ManInfo& info,
                              bool shared) {
  std::string out;
  for (const CLI::Option* option : app.get_options()) {
    if (option->get_group().empty()) continue;  // Hidden.
    if (IsShared(*option, info) != shared) continue;
    // Every command has it: told once.
    if (option == app.get_help_ptr() && app.get_parent()) continue;
    std::string text = option->get_description();
    const std::string value = option->get_default_str();
    if (!value.empty() && text.find("default") == std::string::npos) {
      text += " (default: " + value + ")";
    }
    out += ".TP\n" + NamesOf(*option) + "\n" + Escape(text) + "\n";
  }
  return out;
}

inline std::string FullName(const CLI::App& app) {
  std::string name = app.get_name();
  for (const CLI::App* p = app.get_parent(); p; p = p->get_parent()) {
    name = p->get_name() + " " + name;
  }
  return name;
}

inline std::string Synopsis(const CLI::App& app) {
  std::string out = ".B " + Escape(FullName(app)) + "\n";
  const auto commands = app.get_subcommands({});
  if (!commands.empty()) return out + ".I COMMAND\n[\\fIOPTIONS\\fR]\n";
  out += "[\\fIOPTIONS\\fR]\n";
  for (const CLI::Option* option : app.get_options()) {
    if (!option->get_positional() || option->get_group().empty()) continue;
    const bool many = option->get_items_expected_max() > 1;
    out += ".I " + Escape(option->get_name()) + (many ? "...\n" : "\n");
  }
  return out;
}

// A leaf and all below; groups are only their leaves' names.
inline void AddCommands(const CLI::App& app, const ManInfo& info,
                        std::string* out) {
  for (const CLI::App* command : app.get_subcommands({})) {
    if (command->get_group().empty()) continue;
    if (!command->get_subcommands({}).empty()) {
      AddCommands(*command, info, out);
      continue;
    }
    *out += ".SS " + Quoted(FullName(*command)) + "\n";
    *out += Synopsis(*command);
    *out += ".PP\n" + Escape(command->get_description()) + ".\n";
    *out += OptionList(*command, info, false);
    *out += Prose(command->get_footer());
  }
}

// The first app below that has options of the shared group.
inline const CLI::App* WithShared(const CLI::App& app, const ManInfo& info) {
  for (const CLI::Option* option : app.get_options()) {
    if (IsShared(*option, info)) return &app;
  }
  for (const CLI::App* command : app.get_subcommands({})) {
    if (const CLI::App* found = WithShared(*command, info)) return found;
  }
  return nullptr;
}

inline std::string Upper(std::string text) {
  for (char& c : text) c = static_cast<char>(std::toupper(c));
  return text;
}

}  // namespace man_internal

// The page of `app` and all its commands, for man(1). Pure.
inline std::string ManPage(const CLI::App& app, const ManInfo& info) {
  using namespace man_internal;
  const std::string description = app.get_description();
  const size_t first =
      std::min(description.find_first_of(".\n:"), description.size());
  std::string name = description.substr(0, first);
  if (name.size() > 1 && std::islower(static_cast<unsigned char>(name[1]))) {
    name[0] = static_cast<char>(std::tolower(name[0]));
  }
  std::string out =
      ".TH " + Quoted(Upper(app.get_name())) + " " +
      std::to_string(info.section) + " \"\" " +
      Quoted("lockstep " + info.version) + " " +
      Quoted(info.section == 8 ? "System administration" : "User commands") +
      "\n";
  // No hyphenation and straight right edges: option names must stay whole.
  out += ".nh\n.ad l\n";
  out += ".SH NAME\n" + Escape(app.get_name()) + " \\- " + Escape(name) + "\n";
  out += ".SH SYNOPSIS\n" + Synopsis(app);
  out += ".SH DESCRIPTION\n" + Prose(description);
  const std::string options = OptionList(app, info, false);
  if (!options.empty()) out += ".SH OPTIONS\n" + options;
  std::string commands;
  AddCommands(app, info, &commands);
  if (!commands.empty()) out += ".SH COMMANDS\n" + commands;
  if (const CLI::App* shared = WithShared(app, info)) {
    out += ".SH " + Quoted(Upper(info.shared_group) + " OPTIONS") +
           "\nOf every command that asks the coordinator.\n" +
           OptionList(*shared, info, true);
  }
  const std::string footer = Prose(app.get_footer());
  if (!footer.empty()) out += ".SH NOTES\n" + footer;
  if (!info.see_also.empty()) {
    out += ".SH \"SEE ALSO\"\n";
    for (size_t i = 0; i < info.see_also.size(); ++i) {
      const std::string& page = info.see_also[i];
      const size_t open = page.find('(');
      out += ".BR " + Escape(page.substr(0, open)) + " " + page.substr(open) +
             (i + 1 < info.see_also.size() ? " ,\n" : "\n");
    }
  }
  return out;
}

// A hidden flag --help-man that writes the page to `out` and ends the parsing
// with CLI::Success, as --version does. `out` and `app` outlive the parsing.
inline void AddManOption(CLI::App* app, const ManInfo& info,
                         std::ostream* out) {
  app->add_flag_callback(
         "--help-man",
         [app, info, out] {
           *out << ManPage(*app, info) << std::flush;
           throw CLI::Success();
         },
         "The manual page, for man(1)")
      ->group("");
}

}  // namespace lockstep

#endif  // LOCKSTEP_COMMON_CLI_MAN_H_
