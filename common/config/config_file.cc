#include "common/config/config_file.h"

#include <fmt/format.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <istream>
#include <map>
#include <string>
#include <vector>

#include "common/model/names.h"

namespace lockstep {
namespace {

// Far above what a hundred options need. It rejects a log given by mistake.
constexpr std::streamsize kMaxBytes = 1 << 20;

// Returns the form of a key that messages show.
std::string WithUnderscores(std::string key) {
  std::replace(key.begin(), key.end(), '-', '_');
  return key;
}

// Returns the keys of the flags that a file may set.
std::vector<std::string> KeysOf(const Command& command) {
  std::vector<std::string> keys;
  for (const Flag& flag : command.flags) {
    if (!flag.configurable) continue;
    for (const std::string& name : flag.Names()) {
      if (IsLongName(name)) keys.push_back(WithUnderscores(name.substr(2)));
    }
  }
  return keys;
}

StatusOr<std::vector<std::string>> Values(const std::string& where,
                                          const YAML::Node& node) {
  std::vector<std::string> values;
  if (node.IsScalar()) values.push_back(node.as<std::string>());
  if (node.IsSequence()) {
    for (const auto& value : node) {
      if (!value.IsScalar()) {
        return InvalidArgument("{} has a value that is not a text", where);
      }
      values.push_back(value.as<std::string>());
    }
  }
  if (!values.empty()) return values;
  if (!node.IsMap()) return InvalidArgument("{} has no value", where);
  return InvalidArgument("{} has a value that no flag can take", where);
}

StatusOr<std::vector<ConfigItem>> Items(const std::string& path,
                                        const YAML::Node& root,
                                        const std::vector<std::string>& known) {
  std::vector<ConfigItem> items;
  if (root.IsNull()) return items;  // All lines are comments.
  if (!root.IsMap()) {
    return InvalidArgument("{}:1: it is not a list of \"name: value\"", path);
  }
  std::map<std::string, int> lines;
  for (const auto& entry : root) {
    const int line = entry.first.Mark().line + 1;
    const auto key = entry.first.as<std::string>("");
    const std::string name = WithUnderscores(key);
    const std::string where = fmt::format("{}:{}: ", path, line);
    if (std::find(known.begin(), known.end(), name) == known.end()) {
      const std::string nearest = Nearest(name, known);
      return InvalidArgument(
          "{}there is no option {}{}", where, key,
          nearest.empty() ? "" : "; did you mean " + nearest + "?");
    }
    if (const auto [it, is_new] = lines.emplace(name, line); !is_new) {
      return InvalidArgument("{}{} is already in line {}", where, key,
                             it->second);
    }
    LOCKSTEP_ASSIGN_OR_RETURN(std::vector<std::string> values,
                              Values(where + key, entry.second));
    items.push_back({name, std::move(values)});
  }
  return items;
}

StatusOr<std::vector<ConfigItem>> Read(const std::string& path,
                                       std::istream& in,
                                       const std::vector<std::string>& known) {
  std::string text(kMaxBytes + 1, '\0');
  in.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (in.gcount() > kMaxBytes) {
    return InvalidArgument("{}: more than {} bytes", path, kMaxBytes);
  }
  text.resize(static_cast<size_t>(in.gcount()));
  try {
    return Items(path, YAML::Load(text), known);
  } catch (const YAML::Exception& e) {
    return InvalidArgument("{}:{}: {}", path, e.mark.line + 1, e.msg);
  }
}

}  // namespace

void AddConfigFile(Command* command) {
  command->read_config = [known = KeysOf(*command)](const std::string& path,
                                                    std::istream& in) {
    return Read(path, in, known);
  };
  command->Add(
      "--config FILE", BuiltIn::kConfigFile,
      "YAML file with these flags by name; the command line overrides it",
      NotInFile);
}

}  // namespace lockstep
