// --format and --sort-by as gcloud takes them, of resources as JSON:
//
//   json  yaml  none  default
//   value(jobId,state)  csv[no-heading](jobId,labels.team)
//   table[box,title="Jobs"](jobId:label=NAME,lockstep.tasks[0].node)
//
// A key is a path of fields; [N] takes one of a list, [] or nothing all. What
// is not there is empty. gcloud's transforms, as createTime.date(), are
// refused. Pure.
#ifndef LOCKSTEP_CLIENT_CLI_RESOURCE_FORMAT_H_
#define LOCKSTEP_CLIENT_CLI_RESOURCE_FORMAT_H_

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/status.h"

namespace lockstep {

struct FormatKey {
  std::vector<std::string> path;
  // The column's; empty: of the path's end, "JOB_ID".
  std::string label;
};

struct ResourceFormat {
  enum class Kind { kDefault, kJson, kYaml, kValue, kCsv, kTable, kNone };
  Kind kind = Kind::kDefault;
  std::vector<FormatKey> keys;
  bool heading = true;
  bool box = false;
  std::string title;
  // Between values; empty: that of the kind.
  std::string separator;
};

// InvalidArgument: what is wrong, at which column, and what there is.
StatusOr<ResourceFormat> ParseResourceFormat(std::string_view text);

// "jobId,~createTime": `first` is the most important; ~ turns it round.
struct SortKey {
  std::vector<std::string> path;
  bool descending = false;
};
StatusOr<std::vector<SortKey>> ParseSortKeys(std::string_view text);
// Where each comes: order[0] is the first. Numbers by their value, also those
// in quotes; what is not there comes last; equal ones stay as they were.
std::vector<size_t> SortOrder(const std::vector<nlohmann::ordered_json>& all,
                              const std::vector<SortKey>& keys);

// What `path` leads to as one text: lists with ";", maps as "a=1;b=2".
std::string FieldText(const nlohmann::ordered_json& resource,
                      const std::vector<std::string>& path);

// `is_list`: as one of many, also where there is one. REQUIRES: the format is
// not kDefault.
std::string RenderResources(const std::vector<nlohmann::ordered_json>& all,
                            bool is_list, const ResourceFormat& format);

}  // namespace lockstep

#endif  // LOCKSTEP_CLIENT_CLI_RESOURCE_FORMAT_H_
