#include "client/cli/summarize.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <vector>

#include "client/cli/job_resource.h"
#include "client/cli/resource_format.h"

namespace lockstep::cli {
namespace {

struct Column {
  std::vector<std::string> path;
  // Omitted if the job has none.
  bool optional = false;
  std::string label;
};

// Returns a table of one row, or "" without columns.
std::string OverviewTable(const nlohmann::ordered_json& resource,
                          const std::string& title,
                          const std::vector<Column>& columns) {
  ResourceFormat format;
  format.kind = ResourceFormat::Kind::kTable;
  format.box = true;
  format.title = title;
  for (const Column& column : columns) {
    if (column.optional && FieldText(resource, column.path).empty()) continue;
    format.keys.push_back({column.path, column.label});
  }
  if (format.keys.empty()) return "";
  return RenderResources({resource}, false, format);
}

std::vector<Column> Inputs(const std::vector<Column>& fields) {
  std::vector<Column> columns = fields;
  for (Column& column : columns) {
    column.path.insert(column.path.begin(), "trainingInput");
  }
  return columns;
}

}  // namespace

std::string SummarizeJob(const v1::Job& job) {
  nlohmann::ordered_json resource = ServiceFields(job);
  // Seconds suffice.
  for (const char* time : {"createTime", "startTime", "endTime"}) {
    if (!resource.contains(time)) continue;
    resource[time] = resource[time].get<std::string>().substr(0, 19) + "Z";
  }
  if (!job.bill().currency().empty()) {
    resource["cost"] =
        fmt::format("{:.4f} {}", job.bill().cost(), job.bill().currency());
  }
  std::string text = OverviewTable(resource, "Job Overview",
                                   {{{"jobId"}, false, ""},
                                    {{"createTime"}, false, ""},
                                    {{"startTime"}, false, ""},
                                    {{"endTime"}, false, ""},
                                    {{"state"}, false, ""}});
  if (job.has_training()) {
    text += OverviewTable(resource, "Training Input Summary",
                          Inputs({{{"runtimeVersion"}, true, ""},
                                  {{"region"}, false, ""},
                                  {{"scaleTier"}, true, ""},
                                  {{"pythonModule"}, true, ""},
                                  {{"parameterServerType"}, true, ""},
                                  {{"parameterServerCount"}, true, ""},
                                  {{"masterType"}, true, ""},
                                  {{"masterConfig", "imageUri"}, true, ""},
                                  {{"workerType"}, true, ""},
                                  {{"workerCount"}, true, ""},
                                  {{"evaluatorType"}, true, ""},
                                  {{"evaluatorCount"}, true, ""},
                                  {{"jobDir"}, true, ""}}));
  }
  return text + OverviewTable(
                    resource, "Training Output Summary",
                    {{{"trainingOutput", "consumedMLUnits"}, true, "ML_UNITS"},
                     {{"cost"}, true, ""}});
}

}  // namespace lockstep::cli
