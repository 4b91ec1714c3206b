#include "client/cli/listing.h"

#include <google/protobuf/message.h>

#include <ostream>

#include "client/cli/config.h"

namespace lockstep {

Status WriteListing(const Cli& cli, const Listing& listing) {
  LOCKSTEP_ASSIGN_OR_RETURN(const Output output, cli.OutputFormat());
  std::ostream& out = *cli.env->out;
  if (cli.uri) {
    if (output != Output::kTable) {
      return InvalidArgument("--uri prints nothing else: leave -o out");
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
  // A column that is asked for by name is shown whatever the width.
  const bool wide = output == Output::kWide || !cli.columns.empty();
  LOCKSTEP_ASSIGN_OR_RETURN(
      const Table table,
      SelectColumns(listing.table(wide, cli.OutStyle()), cli.columns));
  out << RenderTable(table, !cli.no_headers);
  return OkStatus();
}

}  // namespace lockstep
