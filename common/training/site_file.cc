#include "common/training/site_file.h"

#include <fmt/format.h>

#include "common/training/machines_file.h"
#include "common/yaml/yaml_reader.h"

namespace lockstep {
namespace {

Status ReadRuntime(const YamlValue& value, SiteRuntime* runtime) {
  std::optional<bool> allow_index;
  LOCKSTEP_RETURN_IF_ERROR(ReadFields(value, "a runtime",
                                      {{"python", Into(&runtime->python)},
                                       {"versions", Into(&runtime->versions)},
                                       {"allowIndex", Into(&allow_index)}}));
  runtime->allow_index = allow_index.value_or(false);
  if (runtime->python.empty()) {
    return value.Wrong(
        "lacks python: the interpreter's path on the nodes, such as "
        "/opt/tf2/bin/python3");
  }
  return OkStatus();
}

Status ReadRegion(const YamlValue& value, SiteRegion* region) {
  if (value.IsNull()) return OkStatus();
  return ReadFields(
      value, "a region",
      {{"pool", Into(&region->pool)}, {"note", Into(&region->note)}});
}

Status ReadVisibility(const YamlValue& value, Visibility* visibility) {
  if (value.IsNull()) return OkStatus();
  LOCKSTEP_ASSIGN_OR_RETURN(const std::string text, value.Text());
  if (text != "owner" && text != "cluster") {
    return value.Wrong(fmt::format(
        "\"{}\" is neither owner (only its owner and admins see a job's "
        "details) nor cluster (all users see them)",
        text));
  }
  *visibility = text == "cluster" ? Visibility::kCluster : Visibility::kOwner;
  return OkStatus();
}

}  // namespace

StatusOr<Site> ParseSiteFile(const std::string& text,
                             const std::string& source) {
  LOCKSTEP_ASSIGN_OR_RETURN(const YamlValue root, LoadYaml(text, source));
  Site site;
  std::optional<bool> strict;
  LOCKSTEP_ASSIGN_OR_RETURN(
      site.machines,
      ReadMachineTable(root, source,
                       {{"runtimes", IntoNamed(&site.runtimes, &ReadRuntime)},
                        {"defaultRuntime", Into(&site.default_runtime)},
                        {"strictVersions", Into(&strict)},
                        {"images", Into(&site.images)},
                        {"regions", IntoNamed(&site.regions, &ReadRegion)},
                        {"defaultPool", Into(&site.default_pool)},
                        {"visibility", [&site](const YamlValue& value) {
                           return ReadVisibility(value, &site.visibility);
                         }}}));
  site.strict_versions = strict.value_or(false);
  const Status status = CheckSite(site);
  if (!status.ok()) return Annotate(status, source);
  return site;
}

}  // namespace lockstep
