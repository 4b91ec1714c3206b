#include "client/cli/completion.h"

#include <algorithm>
#include <ostream>

namespace lockstep::cli {
namespace {

constexpr Duration kPatience = std::chrono::milliseconds(300);
constexpr int64_t kMostOfferedJobs = 500;

using Also = Completion::Also;

// Returns the text up to the end of its first sentence, for a list.
std::string Meaning(const std::string& text) {
  return text.substr(0, text.find('\n'));
}

void Offer(const std::string& word, const std::string& meaning,
           Completion* out) {
  if (word.compare(0, out->prefix.size(), out->prefix) != 0) return;
  out->words.emplace_back(out->kept + word, meaning);
}

// Completes the last part of a list.
void OfferStates(const std::vector<std::string>& names, Completion* out) {
  const size_t comma = out->prefix.rfind(',');
  if (comma != std::string::npos) {
    out->kept += out->prefix.substr(0, comma + 1);
    out->prefix.erase(0, comma + 1);
  }
  for (const std::string& name : names) Offer(LowerCase(name), "", out);
}

// Completes a value of `flag` by its choices or its type. `group` is the name
// of the command above.
void CompleteValue(const std::string& group, const Flag& flag,
                   Completion* out) {
  for (const std::string& value : flag.value.one_of) Offer(value, "", out);
  if (!flag.value.one_of.empty()) return;
  if (flag.type == "FILE") out->also = Also::kFiles;
  if (flag.type == "DIR") out->also = Also::kDirs;
  if (flag.type == "JOB") out->also = Also::kJobs;
  if (flag.type == "NODE") out->also = Also::kNodes;
  if (flag.type == "STATES" && group == "nodes") {
    OfferStates(StateNames<v1::NodeState>(v1::NodeState_MAX), out);
  } else if (flag.type == "STATES") {
    OfferStates(StateNames<v1::JobState>(v1::JobState_MAX), out);
  }
  // Connection files.
  for (const char* path : {"--ca", "--cert", "--key"}) {
    if (flag.HasName(path)) out->also = Also::kFiles;
  }
}

void CompleteFlags(const Command& command, Completion* out) {
  for (const Flag& flag : command.flags) {
    if (flag.hidden) continue;
    for (const std::string& name : flag.Names()) {
      if (IsLongName(name)) Offer(name, Meaning(flag.help), out);
    }
  }
}

// The position in the tree after the words before the last one.
struct Place {
  const Command* command = nullptr;
  // The name of the command above it, or empty.
  std::string group;
  size_t positionals = 0;
  // The flag whose value comes next.
  const Flag* flag = nullptr;
  bool lost = false;
};

Place FollowWords(const Command& root, const std::vector<std::string>& words) {
  Place place{&root, "", 0, nullptr, false};
  for (size_t i = 0; i + 1 < words.size(); ++i) {
    const std::string& word = words[i];
    if (place.flag) {
      place.flag = nullptr;
    } else if (word.size() > 1 && word[0] == '-') {
      const Flag* const flag = place.command->Find(word);
      if (flag && flag->TakesValue()) place.flag = flag;
    } else if (const Command* child = place.command->Child(word)) {
      place.group = place.command->name;
      place.command = child;
    } else if (!place.command->children.empty()) {
      place.lost = true;
    } else {
      ++place.positionals;
    }
  }
  return place;
}

// Completes the positional argument at that place.
void CompletePositional(const Place& place, Completion* out) {
  size_t before = place.positionals;
  for (const Flag& flag : place.command->flags) {
    if (!flag.IsPositional()) continue;
    if (before == 0 || flag.TakesMany()) {
      return CompleteValue(place.group, flag, out);
    }
    --before;
  }
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
  list.limit = kMostOfferedJobs;
  const auto jobs = (*client)->ListJobs(list);
  if (!jobs.ok()) return;
  for (const v1::Job& job : *jobs) {
    Offer(job.name(), Text(job.state()), completion);
  }
}

}  // namespace

Completion Complete(const Command& root, std::vector<std::string> words) {
  Completion out;
  if (words.empty()) words.emplace_back();
  if (words.size() > 1 && words.back() == "=") words.back().clear();
  // Bash passes "--opt=value" as three words.
  for (size_t i = 1; i + 1 < words.size();) {
    if (words[i] == "=") {
      words.erase(words.begin() + static_cast<ptrdiff_t>(i));
    } else {
      ++i;
    }
  }
  // Another program and its arguments follow "--".
  if (std::find(words.begin(), words.end() - 1, "--") != words.end() - 1) {
    out.also = Also::kFiles;
    return out;
  }
  const Place place = FollowWords(root, words);
  if (place.lost) return out;
  out.prefix = words.back();
  const size_t equals = out.prefix.find('=');
  if (place.flag) {
    CompleteValue(place.group, *place.flag, &out);
  } else if (out.prefix.starts_with("--") && equals != std::string::npos) {
    const Flag* const flag = place.command->Find(out.prefix.substr(0, equals));
    if (!flag) return out;
    out.kept = out.prefix.substr(0, equals + 1);
    out.prefix.erase(0, equals + 1);
    CompleteValue(place.group, *flag, &out);
  } else if (out.prefix.starts_with('-')) {
    CompleteFlags(*place.command, &out);
  } else if (!place.command->children.empty()) {
    for (const Command& child : place.command->children) {
      Offer(child.name, Meaning(child.description), &out);
    }
  } else {
    CompletePositional(place, &out);
  }
  return out;
}

int RunComplete(const std::vector<std::string>& words, CliEnvironment* env) {
  Cli cli;
  cli.env = env;
  Completion completion = Complete(BuildCommands(&cli), words);
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

}  // namespace lockstep::cli
