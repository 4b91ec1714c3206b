#include "common/config/config_file.h"

#include <fmt/format.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <istream>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "common/model/names.h"

namespace lockstep {
namespace {

// Far above what a hundred options need; a log given by mistake is refused.
constexpr std::streamsize kMaxBytes = 1 << 20;

[[noreturn]] void Refuse(const std::string& what) {
  throw CLI::ConfigError(what);
}

// The flags that a file may set, by their names without dashes.
std::vector<std::string> Names(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::Option* option : app.get_options()) {
    if (!option->get_configurable()) continue;
    for (const std::string& name : option->get_lnames()) names.push_back(name);
  }
  return names;
}

class YamlFile final : public CLI::Config {
 public:
  explicit YamlFile(const CLI::App* app) : app_(app) {}

  std::string to_config(const CLI::App*, bool, bool,
                        std::string) const override {
    return "";
  }

  std::vector<CLI::ConfigItem> from_config(std::istream& in) const override {
    const std::string path = app_->get_config_ptr()->as<std::string>();
    std::string text(kMaxBytes + 1, '\0');
    in.read(text.data(), static_cast<std::streamsize>(text.size()));
    if (in.gcount() > kMaxBytes) {
      Refuse(fmt::format("{}: more than {} bytes", path, kMaxBytes));
    }
    text.resize(static_cast<size_t>(in.gcount()));
    try {
      return Read(path, YAML::Load(text));
    } catch (const YAML::Exception& e) {
      Refuse(fmt::format("{}:{}: {}", path, e.mark.line + 1, e.msg));
    }
  }

 private:
  std::vector<CLI::ConfigItem> Read(const std::string& path,
                                    const YAML::Node& root) const {
    std::vector<CLI::ConfigItem> items;
    if (root.IsNull()) return items;  // All comments.
    if (!root.IsMap()) Refuse(path + ":1: not a list of \"name: value\"");
    const std::vector<std::string> known = Names(*app_);
    std::map<std::string, int> lines;
    for (const auto& entry : root) {
      const int line = entry.first.Mark().line + 1;
      const auto name = entry.first.as<std::string>("");
      const std::string where = fmt::format("{}:{}: ", path, line);
      if (std::find(known.begin(), known.end(), name) == known.end()) {
        const std::string nearest = Nearest(name, known);
        Refuse(where + fmt::format("there is no option {}", name) +
               (nearest.empty() ? "" : "; did you mean " + nearest + "?"));
      }
      if (const auto [it, is_new] = lines.emplace(name, line); !is_new) {
        Refuse(where +
               fmt::format("{} is in line {} already", name, it->second));
      }
      CLI::ConfigItem item;
      item.name = name;
      item.inputs = Values(where + name, entry.second);
      items.push_back(std::move(item));
    }
    return items;
  }

  static std::vector<std::string> Values(const std::string& where,
                                         const YAML::Node& node) {
    if (node.IsScalar()) return {node.as<std::string>()};
    std::vector<std::string> values;
    if (node.IsSequence()) {
      for (const auto& value : node) {
        if (!value.IsScalar()) Refuse(where + " has a value that is no text");
        values.push_back(value.as<std::string>());
      }
    }
    if (values.empty()) Refuse(where + " has no value that a flag could have");
    return values;
  }

  const CLI::App* const app_;
};

}  // namespace

void AddConfigFile(CLI::App* app) {
  app->config_formatter(std::make_shared<YamlFile>(app));
  app->set_config("--config", "",
                  "YAML file with these flags by name; what is given here wins")
      ->type_name("FILE")
      ->expected(1);
}

}  // namespace lockstep
