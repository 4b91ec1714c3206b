#include "client/cli/completion.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <ostream>

namespace lockstep {
namespace {

constexpr Duration kPatience = std::chrono::milliseconds(300);
constexpr int64_t kMostJobs = 500;

using Also = Completion::Also;

const CLI::App* Subcommand(const CLI::App& app, const std::string& word) {
  for (const CLI::App* sub : app.get_subcommands({})) {
    const auto& aliases = sub->get_aliases();
    if (sub->get_name() == word ||
        std::find(aliases.begin(), aliases.end(), word) != aliases.end()) {
      return sub;
    }
  }
  return nullptr;
}

// The text up to the first sentence's end, for a list.
std::string Meaning(const std::string& text) {
  return text.substr(0, text.find('\n'));
}

bool TakesValue(const CLI::Option* option) {
  return option && option->get_items_expected_max() > 0;
}

void Offer(const std::string& word, const std::string& meaning,
           Completion* out) {
  if (word.compare(0, out->prefix.size(), out->prefix) != 0) return;
  out->words.emplace_back(out->kept + word, meaning);
}

// The names of `states` in small letters.
template <typename State>
void OfferStates(int max, Completion* out) {
  const size_t comma = out->prefix.rfind(',');
  if (comma != std::string::npos) {
    out->kept += out->prefix.substr(0, comma + 1);
    out->prefix.erase(0, comma + 1);
  }
  for (int i = 1; i <= max; ++i) {
    std::string name = Text(static_cast<State>(i));
    for (char& c : name) c = static_cast<char>(std::tolower(c));
    Offer(name, "", out);
  }
}

// What a value of `option` may be, by its type's name and its checks.
void CompleteValue(const CLI::App& app, const CLI::Option& option,
                   Completion* out) {
  const std::string full = option.get_type_name();
  const size_t open = full.find('{');
  const size_t close = full.find('}');
  if (open != std::string::npos && close != std::string::npos) {
    for (size_t begin = open + 1; begin < close;) {
      const size_t end = std::min(full.find(',', begin), close);
      Offer(full.substr(begin, end - begin), "", out);
      begin = end + 1;
    }
    return;
  }
  const std::string type = full.substr(0, full.find(':'));
  if (type == "FILE") out->also = Also::kFiles;
  if (type == "DIR") out->also = Also::kDirs;
  if (type == "JOB") out->also = Also::kJobs;
  if (type == "NODE") out->also = Also::kNodes;
  if (type == "STATES") {
    const bool nodes =
        app.get_parent() && app.get_parent()->get_name() == "nodes";
    if (nodes) {
      OfferStates<v1::NodeState>(v1::NodeState_MAX, out);
    } else {
      OfferStates<v1::JobState>(v1::JobState_MAX, out);
    }
  }
  // Connection files and the like.
  const auto& names = option.get_lnames();
  for (const char* path : {"ca", "cert", "key"}) {
    if (std::find(names.begin(), names.end(), path) != names.end()) {
      out->also = Also::kFiles;
    }
  }
}

void CompleteOptions(const CLI::App& app, Completion* out) {
  for (const CLI::Option* option : app.get_options()) {
    if (option->get_group().empty()) continue;
    const std::string meaning = Meaning(option->get_description());
    for (const std::string& name : option->get_lnames()) {
      if (name.find('_') == std::string::npos) {
        Offer("--" + name, meaning, out);
      }
    }
    if (!option->get_lnames().empty()) continue;
    for (const std::string& name : option->get_snames()) {
      Offer("-" + name, meaning, out);
    }
  }
}

// The positional that stands after `before` others.
void CompletePositional(const CLI::App& app, size_t before, Completion* out) {
  for (const CLI::Option* option : app.get_options()) {
    if (!option->get_positional()) continue;
    const auto most =
        static_cast<size_t>(std::max(1, option->get_items_expected_max()));
    if (before < most) return CompleteValue(app, *option, out);
    before -= most;
  }
}

// The words before the last one, followed through the tree.
struct Place {
  const CLI::App* app = nullptr;
  size_t positionals = 0;
  // Whose value comes next.
  const CLI::Option* option = nullptr;
  bool lost = false;
};

Place Follow(const CLI::App& root, const std::vector<std::string>& words) {
  Place place{&root, 0, nullptr, false};
  for (size_t i = 0; i + 1 < words.size(); ++i) {
    const std::string& word = words[i];
    if (place.option) {
      place.option = nullptr;
    } else if (word.size() > 1 && word[0] == '-') {
      const CLI::Option* const option =
          place.app->get_option_no_throw(word.substr(0, word.find('=')));
      if (TakesValue(option) && word.find('=') == std::string::npos) {
        place.option = option;
      }
    } else if (const CLI::App* sub = Subcommand(*place.app, word)) {
      place.app = sub;
    } else if (!place.app->get_subcommands({}).empty()) {
      place.lost = true;
    } else {
      ++place.positionals;
    }
  }
  return place;
}

// The connection that the words name.
ConnectionFlags ConnectionIn(const std::vector<std::string>& words) {
  ConnectionFlags flags;
  const std::pair<std::string, std::string*> texts[] = {
      {"--context", &flags.context},
      {"--address", &flags.address},
      {"--ca", &flags.ca},
      {"--cert", &flags.cert},
      {"--key", &flags.key}};
  for (size_t i = 0; i + 1 < words.size(); ++i) {
    for (const auto& [name, value] : texts) {
      if (words[i] == name && i + 2 < words.size()) *value = words[i + 1];
      if (words[i].rfind(name + "=", 0) == 0) {
        *value = words[i].substr(name.size() + 1);
      }
    }
    if (words[i] == "--insecure-loopback") flags.insecure_loopback = true;
  }
  return flags;
}

void AddNames(const std::vector<std::string>& words, CliEnvironment* env,
              Completion* completion) {
  auto options = ResolveConnection(ConnectionIn(words), *env);
  if (!options.ok()) return;
  options->timeout = kPatience;
  const auto client = Client::Connect(*options);
  if (!client.ok()) return;
  if (completion->also == Also::kNodes) {
    const auto nodes = (*client)->ListNodes();
    if (!nodes.ok()) return;
    for (const v1::Node& node : *nodes) {
      Offer(node.name(), Text(node.state()), completion);
    }
    return;
  }
  ListJobsOptions list;
  list.limit = kMostJobs;
  const auto jobs = (*client)->ListJobs(list);
  if (!jobs.ok()) return;
  for (const v1::Job& job : *jobs) {
    Offer(job.name(), Text(job.state()), completion);
  }
}

}  // namespace

Completion Complete(const CLI::App& root, std::vector<std::string> words) {
  Completion out;
  if (words.empty()) words.emplace_back();
  if (words.size() > 1 && words.back() == "=") words.back().clear();
  // Bash hands "--opt=value" over as three words.
  for (size_t i = 1; i + 1 < words.size();) {
    if (words[i] == "=") {
      words.erase(words.begin() + static_cast<ptrdiff_t>(i));
    } else {
      ++i;
    }
  }
  // What follows "--" is another program and its arguments.
  if (std::find(words.begin(), words.end() - 1, "--") != words.end() - 1) {
    out.also = Also::kFiles;
    return out;
  }
  const Place place = Follow(root, words);
  if (place.lost) return out;
  out.prefix = words.back();
  const size_t equals = out.prefix.find('=');
  if (place.option) {
    CompleteValue(*place.app, *place.option, &out);
  } else if (out.prefix.rfind("--", 0) == 0 && equals != std::string::npos) {
    const CLI::Option* const option =
        place.app->get_option_no_throw(out.prefix.substr(0, equals));
    if (!option) return out;
    out.kept = out.prefix.substr(0, equals + 1);
    out.prefix.erase(0, equals + 1);
    CompleteValue(*place.app, *option, &out);
  } else if (!out.prefix.empty() && out.prefix[0] == '-') {
    CompleteOptions(*place.app, &out);
  } else if (!place.app->get_subcommands({}).empty()) {
    for (const CLI::App* sub : place.app->get_subcommands({})) {
      Offer(sub->get_name(), Meaning(sub->get_description()), &out);
    }
  } else {
    CompletePositional(*place.app, place.positionals, &out);
  }
  return out;
}

int RunComplete(const std::vector<std::string>& words, CliEnvironment* env) {
  Cli cli;
  cli.env = env;
  Completion completion = Complete(*BuildApp(&cli), words);
  if (completion.also == Also::kJobs || completion.also == Also::kNodes) {
    AddNames(words, env, &completion);
  }
  for (const auto& [word, meaning] : completion.words) {
    *env->out << word << "\t" << meaning << "\n";
  }
  if (completion.also == Also::kFiles) *env->out << ":files\n";
  if (completion.also == Also::kDirs) *env->out << ":dirs\n";
  return 0;
}

}  // namespace lockstep
