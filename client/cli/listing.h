// Prints the results of `list` commands in the selected format.
#ifndef LOCKSTEP_CLIENT_CLI_LISTING_H_
#define LOCKSTEP_CLIENT_CLI_LISTING_H_

#include <functional>
#include <string>
#include <vector>

#include "client/cli/cli.h"

namespace lockstep::cli {

struct Listing {
  // For -o json and yaml: the API's list message.
  const google::protobuf::Message* all = nullptr;
  // For -o jsonl: one line each.
  std::vector<const google::protobuf::Message*> items;
  // Replaces `all` and `items` if the list is not a message: JSON, and one JSON
  // line per item.
  std::string json;
  std::vector<std::string> json_lines;
  // For -o name, and --uri.
  std::vector<std::string> names;
  // "jobs": the part of the URI before the name.
  std::string collection;
  std::function<Table(bool wide, const Style& style)> table;
  // On a terminal the last column is cut with "..." instead of wrapping, except
  // for wide tables and selected columns.
  bool cuts_last_column = false;
};

// RenderTable with lines of at most `columns`, if cutting the last column
// suffices.
std::string RenderCut(const Table& table, bool headers, int columns);

// With --uri it prints a line "lockstep://HOST:PORT/jobs/NAME" per item, as
// gcloud does. InvalidArgument if --columns names an unknown column or --uri
// has a format.
Status WriteListing(const Cli& cli, const Listing& listing);

}  // namespace lockstep::cli

#endif  // LOCKSTEP_CLIENT_CLI_LISTING_H_
