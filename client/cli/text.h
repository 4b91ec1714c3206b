// Formats numbers, times, states, tables and colour. Pure.
#ifndef LOCKSTEP_CLIENT_CLI_TEXT_H_
#define LOCKSTEP_CLIENT_CLI_TEXT_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "client/cli/environment.h"
#include "common/base/clock.h"
#include "common/base/status.h"
#include "lockstep/v1/event.pb.h"
#include "lockstep/v1/job.pb.h"
#include "lockstep/v1/job_spec.pb.h"
#include "lockstep/v1/node.pb.h"
#include "lockstep/v1/resources.pb.h"
#include "lockstep/v1/task.pb.h"

namespace lockstep::cli {

// Colours and weights, or none. Colour alone never conveys a state.
struct Style {
  bool color = false;

  std::string Bold(std::string_view text) const;
  std::string Dim(std::string_view text) const;
  std::string Red(std::string_view text) const;
  // Inverts colours, for selections and headings.
  std::string Reverse(std::string_view text) const;
  // Returns the state's name in its colour.
  std::string State(v1::JobState state) const;
  std::string State(v1::NodeState state) const;
};

// `flag` is auto, always or never. auto checks NO_COLOR, then CLICOLOR_FORCE,
// then TERM=dumb, then for a terminal.
bool WantsColor(std::string_view flag, const CliEnvironment& env, bool is_tty);

// "QUEUED", "chief", "RANK_EXIT", "native".
std::string Text(v1::JobState state);
std::string Text(v1::NodeState state);
std::string Text(v1::TaskType type);
std::string Text(v1::JobKind kind);
std::string Text(v1::Reason reason);
std::string Text(v1::RankState state);
// "2 cpus, 1.5 GiB, 1 T4".
std::string Text(const v1::Resources& r);
// "queued" ... "finishing"; empty for final states.
std::string PhaseText(v1::JobState state);

// "1,234,567".
std::string Grouped(int64_t value);
// "1 task", "2 tasks".
std::string Count(int64_t n, std::string_view what);
// At most four digits before grouping starts: "0.8912", "12.3", "1,234".
std::string Number(double value);

Duration ToDuration(const google::protobuf::Duration& d);
WallTime ToWallTime(const google::protobuf::Timestamp& t);
// Parses a value of --state. Returns the index, from 1, of the entry of `names`
// that equals it in any case. InvalidArgument lists them.
StatusOr<int> ParseState(const std::string& text,
                         const std::vector<std::string>& names);
template <typename State>
std::vector<std::string> StateNames(int max) {
  std::vector<std::string> names;
  for (int i = 1; i <= max; ++i) names.push_back(Text(static_cast<State>(i)));
  return names;
}
std::string LowerCase(std::string text);

// "2026-01-31 12:00:00 UTC", or "-" if not set.
std::string TimeText(bool set, const google::protobuf::Timestamp& t);
// Uses the coarsest suitable unit: "12s", "5m", "3h", "2d".
std::string Age(Duration d);

// Ignores escape sequences; one column per UTF-8 code point.
size_t VisibleWidth(std::string_view text);
std::string PadRight(std::string text, size_t width);

// Returns "label        text\n", or an empty string if there is no text.
std::string DescribeRow(const std::string& label, const std::string& text);
// Indents `body` under its title. Returns an empty string if it is empty.
std::string DescribeSection(const std::string& title, const std::string& body,
                            const Style& style);

struct Table {
  std::vector<std::string> header;
  // A row may be shorter than the header.
  std::vector<std::vector<std::string>> rows;
};

// Puts columns two spaces apart, each as wide as its widest cell, without
// trailing blanks. `headers`: begins with the header.
std::string RenderTable(const Table& table, bool headers = true);
std::string RenderTable(const std::vector<std::string>& header,
                        const std::vector<std::vector<std::string>>& rows);
// Returns the first `width` columns of a line. Escape sequences are kept whole,
// and colours end at the cut.
std::string Clip(std::string_view line, size_t width);

// Shows control characters as "\x1b", because names and messages are foreign.
std::string Printable(std::string_view text);

}  // namespace lockstep::cli

#endif  // LOCKSTEP_CLIENT_CLI_TEXT_H_
