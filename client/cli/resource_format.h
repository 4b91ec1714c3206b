// gcloud's --format and --sort-by for resources as JSON:
//
//   json  yaml  none  default
//   value(jobId,state)  csv[no-heading](jobId,labels.team)
//   table[box,title="Jobs"](jobId:label=NAME,lockstep.tasks[0].node)
//
// A key is a path of fields. [N] selects an item of a list; [] or nothing
// selects all. A missing value is empty. gcloud's transforms, such as
// createTime.date(), are rejected. Pure.
#ifndef LOCKSTEP_CLIENT_CLI_RESOURCE_FORMAT_H_
#define LOCKSTEP_CLIENT_CLI_RESOURCE_FORMAT_H_

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/status.h"

namespace lockstep::cli {

struct FormatKey {
  std::vector<std::string> path;
  // The column's label. Empty for the last part of the path, "JOB_ID".
  std::string label;
};

struct ResourceFormat {
  enum class Kind { kDefault, kJson, kYaml, kValue, kCsv, kTable, kNone };
  Kind kind = Kind::kDefault;
  std::vector<FormatKey> keys;
  bool heading = true;
  bool box = false;
  std::string title;
  // The separator of values. Empty for the default of the kind.
  std::string separator;
};

// InvalidArgument names the column, the fault and the valid choices.
StatusOr<ResourceFormat> ParseResourceFormat(std::string_view text);

// "jobId,~createTime": the first key is the most significant; ~ reverses it.
struct SortKey {
  std::vector<std::string> path;
  bool descending = false;
};
StatusOr<std::vector<SortKey>> ParseSortKeys(std::string_view text);
// Returns the sorted indices; order[0] is the first. Numbers, also quoted ones,
// compare by value. Missing values come last. The sort is stable.
std::vector<size_t> SortOrder(const std::vector<nlohmann::ordered_json>& all,
                              const std::vector<SortKey>& keys);

// Returns the value at `path` as text: lists with ";", maps as "a=1;b=2".
std::string FieldText(const nlohmann::ordered_json& resource,
                      const std::vector<std::string>& path);

// `is_list`: the resource is from a list, even if it is the only one. REQUIRES:
// the format is not kDefault.
std::string RenderResources(const std::vector<nlohmann::ordered_json>& all,
                            bool is_list, const ResourceFormat& format);

}  // namespace lockstep::cli

#endif  // LOCKSTEP_CLIENT_CLI_RESOURCE_FORMAT_H_
