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
  // For -o name.
  std::vector<std::string> names;
  std::function<Table(bool wide, const Style& style)> table;
};

// InvalidArgument: --columns names none of the table's.
Status WriteListing(const Cli& cli, const Listing& listing);

}  // namespace lockstep

#endif  // LOCKSTEP_CLIENT_CLI_LISTING_H_
