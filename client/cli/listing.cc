#include "client/cli/listing.h"

#include <google/protobuf/message.h>

#include <algorithm>
#include <ostream>

#include "client/cli/config.h"

namespace lockstep::cli {

std::string RenderCut(const Table& table, bool headers, int columns) {
  constexpr size_t kDots = 3;
  // The start of the last column: the others are as wide as their widest cell.
  size_t begin = 0;
  for (size_t column = 0; column + 1 < table.header.size(); ++column) {
    size_t width = headers ? VisibleWidth(table.header[column]) : 0;
    for (const auto& row : table.rows) {
      if (column < row.size())
        width = std::max(width, VisibleWidth(row[column]));
    }
    begin += width + 2;
  }
  const auto room = static_cast<size_t>(std::max(columns, 0));
  const size_t kept = std::max(begin, room - std::min(room, kDots));
  const std::string rendered = RenderTable(table, headers);
  std::string out;
  for (size_t at = 0; at < rendered.size();) {
    const size_t end = std::min(rendered.find('\n', at), rendered.size() - 1);
    const std::string line = rendered.substr(at, end - at);
    at = end + 1;
    const bool cut = VisibleWidth(line) > std::max(room, begin + kDots);
    out += (cut ? Clip(line, kept) + "..." : line) + "\n";
  }
  return out;
}

Status WriteListing(const Cli& cli, const Listing& listing) {
  LOCKSTEP_ASSIGN_OR_RETURN(const Output output, cli.OutputFormat());
  std::ostream& out = *cli.env->out;
  if (cli.uri) {
    if (output != Output::kTable) {
      return InvalidArgument("--uri cannot be combined with -o");
    }
    LOCKSTEP_ASSIGN_OR_RETURN(const ClientOptions connection,
                              ResolveConnection(cli.connection, *cli.env));
    for (const std::string& name : listing.names) {
      out << "lockstep://" << connection.address << "/" << listing.collection
          << "/" << name << "\n";
    }
    return OkStatus();
  }
  switch (output) {
    case Output::kJson:
      out << (listing.all ? ToJson(*listing.all) : listing.json);
      return OkStatus();
    case Output::kYaml:
      out << (listing.all ? ToYaml(*listing.all) : JsonToYaml(listing.json));
      return OkStatus();
    case Output::kJsonl:
      for (const auto* item : listing.items) out << ToJsonLine(*item);
      for (const std::string& line : listing.json_lines) out << line;
      return OkStatus();
    case Output::kName:
      for (const std::string& name : listing.names) out << name << "\n";
      return OkStatus();
    case Output::kCsv: {
      LOCKSTEP_ASSIGN_OR_RETURN(
          const Table table,
          SelectColumns(listing.table(true, Style{}), cli.columns));
      out << RenderCsv(table, !cli.no_headers);
      return OkStatus();
    }
    case Output::kTable:
    case Output::kWide:
      break;
  }
  // Selected columns are shown at any width.
  const bool wide = output == Output::kWide || !cli.columns.empty();
  LOCKSTEP_ASSIGN_OR_RETURN(
      const Table table,
      SelectColumns(listing.table(wide, cli.OutStyle()), cli.columns));
  const bool cut = listing.cuts_last_column && !wide && cli.env->out_is_tty;
  out << (cut ? RenderCut(table, !cli.no_headers, cli.env->columns)
              : RenderTable(table, !cli.no_headers));
  return OkStatus();
}

}  // namespace lockstep::cli
