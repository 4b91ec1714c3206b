#include "client/cli/text.h"

#include <fmt/format.h>
#include <google/protobuf/util/time_util.h>

#include <algorithm>
#include <cctype>
#include <cmath>

#include "client/cli/terminal_text.h"
#include "common/model/resources.h"

namespace lockstep::cli {
namespace {

std::string Paint(bool color, const char* code, std::string_view text) {
  if (!color || text.empty()) return std::string(text);
  return fmt::format("\x1b[{}m{}\x1b[0m", code, text);
}

// An unknown number from a newer coordinator is shown unchanged.
std::string Strip(std::string name, std::string_view prefix, int value) {
  if (name.empty()) return fmt::format("{}", value);
  return name.substr(prefix.size());
}

}  // namespace

std::string Style::Bold(std::string_view text) const {
  return Paint(color, "1", text);
}
std::string Style::Dim(std::string_view text) const {
  return Paint(color, "2", text);
}
std::string Style::Red(std::string_view text) const {
  return Paint(color, "31", text);
}

std::string Style::Reverse(std::string_view text) const {
  return Paint(color, "7", text);
}

std::string Style::State(v1::JobState state) const {
  const std::string text = Text(state);
  switch (state) {
    case v1::JOB_STATE_SUCCEEDED:
      return Paint(color, "32", text);
    case v1::JOB_STATE_FAILED:
      return Paint(color, "31", text);
    case v1::JOB_STATE_CANCELLED:
      return Paint(color, "33", text);
    case v1::JOB_STATE_RUNNING:
      return Paint(color, "36", text);
    default:
      return text;
  }
}

std::string Style::State(v1::NodeState state) const {
  const std::string text = Text(state);
  if (state == v1::NODE_STATE_READY) return Paint(color, "32", text);
  if (state == v1::NODE_STATE_LOST || state == v1::NODE_STATE_QUARANTINED) {
    return Paint(color, "31", text);
  }
  return Paint(color, "33", text);
}

bool WantsColor(std::string_view flag, const CliEnvironment& env, bool is_tty) {
  if (flag == "always") return true;
  if (flag == "never") return false;
  // no-color.org: set and not empty.
  if (!env.Variable("NO_COLOR").empty()) return false;
  const std::string force = env.Variable("CLICOLOR_FORCE");
  if (!force.empty() && force != "0") return true;
  return is_tty && env.Variable("TERM") != "dumb";
}

std::string Text(v1::JobState state) {
  return Strip(v1::JobState_Name(state), "JOB_STATE_", state);
}
std::string Text(v1::NodeState state) {
  return Strip(v1::NodeState_Name(state), "NODE_STATE_", state);
}
std::string Text(v1::TaskType type) {
  return LowerCase(Strip(v1::TaskType_Name(type), "TASK_TYPE_", type));
}
std::string Text(v1::JobKind kind) {
  return LowerCase(Strip(v1::JobKind_Name(kind), "JOB_KIND_", kind));
}
std::string Text(v1::Reason reason) {
  return Strip(v1::Reason_Name(reason), "REASON_", reason);
}
std::string Text(v1::RankState state) {
  return Strip(v1::RankState_Name(state), "RANK_STATE_", state);
}

std::string Text(const v1::Resources& r) {
  return Describe(
      Resources{r.cpus(), r.memory_bytes(), r.gpus(), Printable(r.gpu_type())});
}

std::string PhaseText(v1::JobState state) {
  switch (state) {
    case v1::JOB_STATE_QUEUED:
    case v1::JOB_STATE_PLACING:
    case v1::JOB_STATE_PREPARING:
    case v1::JOB_STATE_FORMING:
    case v1::JOB_STATE_RUNNING:
    case v1::JOB_STATE_FINISHING:
      return LowerCase(Text(state));
    default:
      return "";
  }
}

std::string Grouped(int64_t value) {
  std::string digits = fmt::format("{}", value);
  const size_t begin = value < 0 ? 1 : 0;
  for (size_t i = digits.size(); i > begin + 3;) {
    i -= 3;
    digits.insert(i, 1, ',');
  }
  return digits;
}

std::string Count(int64_t n, std::string_view what) {
  return fmt::format("{} {}{}", Grouped(n), what, n == 1 ? "" : "s");
}

std::string Number(double value) {
  if (!std::isfinite(value)) return fmt::format("{}", value);
  if (std::abs(value) >= 1e15) return fmt::format("{:.4g}", value);
  if (std::abs(value) >= 1000) {
    return Grouped(static_cast<int64_t>(std::llround(value)));
  }
  return fmt::format("{:.4g}", value);
}

Duration ToDuration(const google::protobuf::Duration& d) {
  return std::chrono::seconds(d.seconds()) + Duration(d.nanos());
}

WallTime ToWallTime(const google::protobuf::Timestamp& t) {
  return WallTime(std::chrono::seconds(t.seconds()) + Duration(t.nanos()));
}

std::string TimeText(bool set, const google::protobuf::Timestamp& t) {
  if (!set) return "-";
  std::string text = FormatWallTime(ToWallTime(t));
  text[10] = ' ';
  return text.substr(0, 19) + " UTC";
}

std::string Age(Duration d) {
  const int64_t s = std::max<int64_t>(0, static_cast<int64_t>(ToSeconds(d)));
  if (s < 120) return fmt::format("{}s", s);
  if (s < 2 * 3600) return fmt::format("{}m", s / 60);
  if (s < 2 * 86400) return fmt::format("{}h", s / 3600);
  return fmt::format("{}d", s / 86400);
}

size_t VisibleWidth(std::string_view text) {
  size_t width = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\x1b') {
      i = std::min(text.find('m', i), text.size());
    } else if ((static_cast<unsigned char>(text[i]) & 0xc0) != 0x80) {
      ++width;
    }
  }
  return width;
}

std::string PadRight(std::string text, size_t width) {
  const size_t visible = VisibleWidth(text);
  if (visible < width) text.append(width - visible, ' ');
  return text;
}

std::string RenderTable(const std::vector<std::string>& header,
                        const std::vector<std::vector<std::string>>& rows) {
  return RenderTable(Table{header, rows});
}

std::string Clip(std::string_view line, size_t width) {
  std::string out;
  size_t used = 0;
  bool painted = false;
  for (size_t i = 0; i < line.size();) {
    if (line[i] == '\x1b') {
      const size_t end = std::min(line.find('m', i), line.size() - 1);
      painted = line.substr(i, end + 1 - i) != "\x1b[0m";
      out += line.substr(i, end + 1 - i);
      i = end + 1;
      continue;
    }
    size_t next = i + 1;
    while (next < line.size() &&
           (static_cast<unsigned char>(line[next]) & 0xc0) == 0x80) {
      ++next;
    }
    if (++used > width) break;
    out += line.substr(i, next - i);
    i = next;
  }
  if (used > width && painted) out += "\x1b[0m";
  return out;
}

std::string RenderTable(const Table& table, bool headers) {
  const auto& [header, rows] = table;
  std::vector<size_t> widths(header.size());
  const auto widen = [&](const std::vector<std::string>& row) {
    for (size_t i = 0; i < row.size() && i < widths.size(); ++i) {
      widths[i] = std::max(widths[i], VisibleWidth(row[i]));
    }
  };
  if (headers) widen(header);
  for (const auto& row : rows) widen(row);
  std::string text;
  const auto render = [&](const std::vector<std::string>& row) {
    std::string line;
    for (size_t i = 0; i < row.size() && i < widths.size(); ++i) {
      if (i > 0) line += "  ";
      line += PadRight(row[i], widths[i]);
    }
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + "\n";
  };
  if (headers) render(header);
  for (const auto& row : rows) render(row);
  return text;
}

std::string DescribeRow(const std::string& label, const std::string& text) {
  if (text.empty()) return "";
  return fmt::format("{:<12} {}\n", label, text);
}

std::string DescribeSection(const std::string& title, const std::string& body,
                            const Style& style) {
  if (body.empty()) return "";
  std::string text = "\n" + style.Bold(title) + "\n";
  for (size_t begin = 0; begin < body.size();) {
    const size_t end = std::min(body.find('\n', begin), body.size() - 1);
    text += "  " + body.substr(begin, end + 1 - begin);
    begin = end + 1;
  }
  return text;
}

std::string LowerCase(std::string text) {
  for (char& c : text) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return text;
}

StatusOr<int> ParseState(const std::string& text,
                         const std::vector<std::string>& names) {
  std::string wanted = text;
  for (char& c : wanted) c = static_cast<char>(std::toupper(c));
  std::string known;
  for (size_t i = 0; i < names.size(); ++i) {
    if (names[i] == wanted) return static_cast<int>(i) + 1;
    known += (i == 0                  ? ""
              : i + 1 == names.size() ? " and "
                                      : ", ") +
             LowerCase(names[i]);
  }
  return InvalidArgument("--state: there is no {}; there are {}", wanted,
                         known);
}

std::string Printable(std::string_view text) {
  std::string out = TerminalText(text, /*colors=*/false);
  for (char& c : out) {
    if (c == '\n' || c == '\t') c = ' ';
  }
  return out;
}

}  // namespace lockstep::cli
