// What `list` commands print, in whatever format was asked for.
#ifndef LOCKSTEP_CLIENT_CLI_LISTING_H_
#define LOCKSTEP_CLIENT_CLI_LISTING_H_

#include <functional>
#include <string>
#include <vector>

#include "client/cli/cli.h"

namespace lockstep {

struct Listing {
  // For -o json and yaml: the API's list message.
  const google::protobuf::Message* all = nullptr;
  // For -o jsonl: one line each.
  std::vector<const google::protobuf::Message*> items;
  // Instead of `all` and `items`, where it is not a message: JSON, and a line
  // of it for each.
  std::string json;
  std::vector<std::string> json_lines;
  // For -o name, and --uri.
  std::vector<std::string> names;
  // "jobs": of the names, in their URIs.
  std::string collection;
  std::function<Table(bool wide, const Style& style)> table;
  // On a terminal the last column ends with "..." where it would wrap, but for
  // wide tables and columns that were asked for.
  bool cuts_last_column = false;
};

// As RenderTable, with lines of at most `columns`, as far as that can be
// reached by cutting the last column.
std::string RenderCut(const Table& table, bool headers, int columns);

// With --uri a line "lockstep://HOST:PORT/jobs/NAME" of each, as gcloud's.
// InvalidArgument: --columns names none of the table's; --uri with a format.
Status WriteListing(const Cli& cli, const Listing& listing);

}  // namespace lockstep

#endif  // LOCKSTEP_CLIENT_CLI_LISTING_H_
