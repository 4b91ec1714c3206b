#include "common/training/site.h"

#include <algorithm>

#include "common/model/names.h"

namespace lockstep {
namespace {

constexpr char kAnyPython[] = "python3";
constexpr size_t kMaxSiteText = 1024;

bool IsClean(const std::string& text) {
  return text.size() <= kMaxSiteText &&
         std::none_of(text.begin(), text.end(), [](char c) {
           return static_cast<unsigned char>(c) < 0x20 || c == 0x7f;
         });
}

bool Means(const std::string& pattern, const std::string& version) {
  if (!pattern.ends_with('*')) return pattern == version;
  return version.starts_with(pattern.substr(0, pattern.size() - 1));
}

// Returns how many characters of `version` the best entry of `versions`
// matches. An exact entry beats every "2.*". 0 if none matches.
size_t HowWell(const std::vector<std::string>& versions,
               const std::string& version) {
  size_t best = 0;
  for (const std::string& pattern : versions) {
    if (!Means(pattern, version)) continue;
    best = std::max(best,
                    pattern == version ? version.size() + 2 : pattern.size());
  }
  return best;
}

std::vector<std::string> NamesOf(
    const std::map<std::string, SiteRuntime>& runtimes) {
  std::vector<std::string> names;
  for (const auto& [name, runtime] : runtimes) names.push_back(name);
  return names;
}

Runtime DefaultRuntime(const Site& site) {
  const auto found = site.runtimes.find(site.default_runtime);
  if (found == site.runtimes.end()) return {"", kAnyPython, false};
  return {found->first, found->second.python, found->second.allow_index};
}

Status CheckRuntime(const std::string& name, const SiteRuntime& runtime) {
  const std::string path = "runtimes." + name;
  if (name.empty() || !IsClean(name)) {
    return InvalidArgument("{}: is not a runtime name", path);
  }
  if (runtime.python.empty() || !IsClean(runtime.python)) {
    return InvalidArgument(
        "{}.python: is missing: give the interpreter's path on the nodes, "
        "such as /opt/tf2/bin/python3",
        path);
  }
  for (const std::string& version : runtime.versions) {
    if (version.empty() || !IsClean(version)) {
      return InvalidArgument("{}.versions: holds an empty version", path);
    }
  }
  return OkStatus();
}

Status CheckPool(const std::string& path, const std::string& pool) {
  if (pool.empty() || IsPoolName(pool)) return OkStatus();
  return InvalidArgument(
      "{}: \"{}\" is not a pool name: use at most 63 lower-case letters, "
      "digits "
      "or \"-\"",
      path, IsClean(pool) ? pool.substr(0, 80) : "...");
}

}  // namespace

Site DefaultSite() {
  Site site;
  site.machines = DefaultMachineTable();
  return site;
}

Status CheckSite(const Site& site) {
  for (const auto& [name, runtime] : site.runtimes) {
    LOCKSTEP_RETURN_IF_ERROR(CheckRuntime(name, runtime));
  }
  const std::string& fallback = site.default_runtime;
  if (!fallback.empty() && !site.runtimes.contains(fallback)) {
    return InvalidArgument("defaultRuntime: there is no {} in runtimes",
                           fallback);
  }
  for (const auto& [from, to] : site.images) {
    if (from.empty() || !IsClean(from) || !IsClean(to)) {
      return InvalidArgument(
          "images: \"{}\" is not a prefix of an image name, such as "
          "gcr.io/my-project/",
          from.empty() ? "" : "...");
    }
  }
  for (const auto& [name, region] : site.regions) {
    if (!IsClean(name) || !IsClean(region.note)) {
      return InvalidArgument(
          "regions: a name or note has control characters or is too long");
    }
    LOCKSTEP_RETURN_IF_ERROR(
        CheckPool("regions." + name + ".pool", region.pool));
  }
  LOCKSTEP_RETURN_IF_ERROR(CheckPool("defaultPool", site.default_pool));
  return OkStatus();
}

StatusOr<ResolvedRuntime> ResolveRuntime(const Site& site,
                                         const std::string& name,
                                         const std::string& version) {
  const std::vector<std::string> known = NamesOf(site.runtimes);
  if (!name.empty()) {
    const auto found = site.runtimes.find(name);
    if (found != site.runtimes.end()) {
      return ResolvedRuntime{
          {name, found->second.python, found->second.allow_index}, false};
    }
    const std::string nearest = Nearest(name, known);
    return InvalidArgument(
        "lockstep.runtime: there is no {}; {}", name,
        !nearest.empty() ? "did you mean " + nearest + "?"
        : known.empty()  ? "this site has none: add it to the coordinator's "
                           "machines_file, or leave it out"
                         : fmt::format("this site has {}; add others to the "
                                        "coordinator's machines_file",
                                       fmt::join(known, ", ")));
  }
  if (version.empty()) return ResolvedRuntime{DefaultRuntime(site), false};
  size_t best = 0;
  ResolvedRuntime out{DefaultRuntime(site), true};
  for (const auto& [other, runtime] : site.runtimes) {
    const size_t well = HowWell(runtime.versions, version);
    if (well <= best) continue;
    best = well;
    out = {{other, runtime.python, runtime.allow_index}, false};
  }
  if (best == 0 && site.strict_versions) {
    return InvalidArgument(
        "trainingInput.runtimeVersion: this site has no interpreter for "
        "{}; name one by lockstep.runtime{}",
        version,
        known.empty() ? "" : fmt::format(": {}", fmt::join(known, ", ")));
  }
  return out;
}

std::string RewriteImage(const std::string& image,
                         const std::map<std::string, std::string>& beginnings) {
  const std::pair<const std::string, std::string>* longest = nullptr;
  for (const auto& beginning : beginnings) {
    if (image.starts_with(beginning.first) &&
        (!longest || beginning.first.size() > longest->first.size())) {
      longest = &beginning;
    }
  }
  if (!longest) return image;
  return longest->second + image.substr(longest->first.size());
}

}  // namespace lockstep
