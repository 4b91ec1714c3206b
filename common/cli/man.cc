#include "common/cli/man.h"

#include <algorithm>
#include <cctype>

#include "common/base/ascii.h"

namespace lockstep {
namespace {

// "\fB\-o\fR, \fB\-\-output\-format\fR \fIFORMAT\fR".
std::string NamesOf(const Flag& flag) {
  if (flag.IsPositional()) return "\\fI" + RoffText(flag.names) + "\\fR";
  std::string out;
  for (const std::string& name : flag.Names()) {
    out += (out.empty() ? "" : ", ") + ("\\fB" + RoffText(name)) + "\\fR";
  }
  const std::string type = flag.TypeName();
  if (!type.empty()) out += " \\fI" + RoffText(type) + "\\fR";
  return out;
}

bool IsShared(const Flag& flag, const ManualInfo& info) {
  return !info.shared_heading.empty() &&
         flag.heading.starts_with(info.shared_heading);
}

// Lists the flags under the shared heading, or all others. Every command has
// --help, so the page describes it only for the root.
std::string FlagList(const Command& command, const ManualInfo& info,
                     bool shared, bool with_help) {
  std::string out;
  for (const Flag& flag : command.flags) {
    if (flag.hidden || IsShared(flag, info) != shared) continue;
    if (flag.IsHelp() && !with_help) continue;
    std::string text = flag.help;
    if (!flag.default_text.empty() &&
        text.find("default") == std::string::npos) {
      text += " (default: " + flag.default_text + ")";
    }
    out += ".TP\n" + NamesOf(flag) + "\n" + RoffText(text) + "\n";
  }
  return out;
}

std::string Synopsis(const Command& command, const std::string& full_name) {
  std::string out = ".B " + RoffText(full_name) + "\n";
  if (!command.children.empty()) return out + ".I COMMAND\n[\\fIOPTIONS\\fR]\n";
  out += "[\\fIOPTIONS\\fR]\n";
  for (const Flag& flag : command.flags) {
    if (!flag.IsPositional() || flag.hidden) continue;
    out += ".I " + RoffText(flag.names) + (flag.TakesMany() ? "...\n" : "\n");
  }
  return out;
}

// Describes the leaves below `command`. A group appears only in their names.
void AddCommands(const Command& command, const std::string& full_name,
                 const ManualInfo& info, std::string* out) {
  for (const Command& child : command.children) {
    const std::string name = full_name + " " + child.name;
    if (!child.children.empty()) {
      AddCommands(child, name, info, out);
      continue;
    }
    *out += ".SS " + RoffQuoted(name) + "\n" + Synopsis(child, name);
    *out += ".PP\n" + RoffText(child.description) + ".\n";
    *out += FlagList(child, info, false, false) + RoffProse(child.footer);
  }
}

// Lists the shared flags of the first command that has any.
std::string SharedFlags(const Command& command, const ManualInfo& info) {
  std::string list = FlagList(command, info, true, false);
  for (const Command& child : command.children) {
    if (!list.empty()) break;
    list = SharedFlags(child, info);
  }
  return list;
}

// The first sentence, in a form that can follow the program's name.
std::string Summary(const std::string& description) {
  std::string text = description.substr(0, description.find_first_of(".\n:"));
  if (text.size() > 1 && std::islower(static_cast<unsigned char>(text[1]))) {
    text[0] = static_cast<char>(std::tolower(text[0]));
  }
  return text;
}

}  // namespace

std::string RoffText(const std::string& text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '\\') {
      out += "\\e";
    } else if (c == '-') {
      out += "\\-";
    } else if (c == ',' && i + 1 < text.size() && text[i + 1] != ' ') {
      out += ",\\:";  // A long list may go on in the next line.
    } else if ((c == '.' || c == '\'') && (out.empty() || out.back() == '\n')) {
      out += "\\&";
      out += c;
    } else {
      out += c;
    }
  }
  return out;
}

std::string RoffQuoted(const std::string& text) {
  std::string out = "\"";
  for (const char c : RoffText(text))
    out += c == '"' ? "\\(dq" : std::string(1, c);
  return out + "\"";
}

std::string RoffProse(const std::string& text) {
  std::string out;
  bool verbatim = false;
  bool blank = true;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    const std::string line = text.substr(begin, end - begin);
    begin = end + 1;
    const bool indented = line.starts_with("  ");
    if (verbatim && !indented) out += ".fi\n.RE\n";
    if (line.empty()) {
      blank = true;
    } else if (indented) {
      if (!verbatim) out += ".RS 4\n.nf\n";
      out += RoffText(line.substr(2)) + "\n";
      blank = false;
    } else {
      if (blank || verbatim) out += ".PP\n";
      out += RoffText(line) + "\n";
      blank = false;
    }
    verbatim = indented;
  }
  if (verbatim) out += ".fi\n.RE\n";
  return out;
}

std::string ManualPage(const Command& root) {
  const ManualInfo& info = root.manual;
  std::string out = ".TH " + RoffQuoted(AsciiUpper(root.name)) + " " +
                    std::to_string(info.section) + " \"\" " +
                    RoffQuoted("lockstep " + info.version) + " " +
                    RoffQuoted(info.section == 8 ? "System administration"
                                                 : "User commands") +
                    "\n";
  // No hyphenation and straight right edges: option names must stay whole.
  out += ".nh\n.ad l\n";
  out += ".SH NAME\n" + RoffText(root.name) + " \\- " +
         RoffText(Summary(root.description)) + "\n";
  out += ".SH SYNOPSIS\n" + Synopsis(root, root.name);
  out += ".SH DESCRIPTION\n" + RoffProse(root.description);
  const auto section = [&](const std::string& title, const std::string& text) {
    if (!text.empty()) out += ".SH " + title + "\n" + text;
  };
  section("OPTIONS", FlagList(root, info, false, true));
  std::string commands;
  AddCommands(root, root.name, info, &commands);
  section("COMMANDS", commands);
  const std::string shared = SharedFlags(root, info);
  if (!shared.empty()) {
    section(RoffQuoted(AsciiUpper(info.shared_heading) + " OPTIONS"),
            "For every command that connects to the coordinator.\n" + shared);
  }
  section("NOTES", RoffProse(root.footer));
  std::string pages;
  for (const std::string& page : info.see_also) {
    const size_t open = page.find('(');
    pages += (pages.empty() ? ".BR " : " ,\n.BR ") +
             RoffText(page.substr(0, open)) + " " + page.substr(open);
  }
  section("\"SEE ALSO\"", pages.empty() ? "" : pages + "\n");
  return out;
}

}  // namespace lockstep
