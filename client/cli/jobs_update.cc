// `lockstep jobs update`: a job's labels, as gcloud has it, and its priority.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <ostream>

#include "client/cli/cli.h"
#include "client/cli/follow.h"
#include "client/cli/parse.h"

namespace lockstep {
namespace {

struct Options {
  std::string name;
  std::vector<std::string> update;
  std::vector<std::string> remove;
  bool clear = false;
  std::optional<int32_t> priority;
};

std::string LabelsText(const v1::Job& job) {
  std::map<std::string, std::string> labels(job.spec().labels().begin(),
                                            job.spec().labels().end());
  std::string text;
  for (const auto& [key, value] : labels) {
    text += (text.empty() ? "" : ", ") + Printable(key + "=" + value);
  }
  return text.empty() ? "no labels" : "labels " + text;
}

StatusOr<int> Run(const Cli& cli, const Options& options) {
  UpdateJobOptions update;
  update.clear_labels = options.clear;
  update.remove_labels = options.remove;
  for (const std::string& text : options.update) {
    const auto pair = ParsePair(text);
    if (!pair.ok()) return Annotate(pair.status(), "--update-labels");
    update.labels[pair->first] = pair->second;
  }
  update.priority = options.priority;
  if (update.labels.empty() && update.remove_labels.empty() &&
      !update.clear_labels && !update.priority) {
    return InvalidArgument(
        "nothing to change: give --priority N, --update-labels KEY=VALUE, "
        "--remove-labels KEY or --clear-labels");
  }
  LOCKSTEP_ASSIGN_OR_RETURN(const Output output, cli.OutputFormat());
  LOCKSTEP_ASSIGN_OR_RETURN(const auto client, cli.Connect());
  LOCKSTEP_ASSIGN_OR_RETURN(const v1::Job job,
                            client->UpdateJob(options.name, update));
  if (output == Output::kTable || output == Output::kWide) {
    *cli.env->out << fmt::format(
        "Updated job [{}]: {}{}\n", job.name(), LabelsText(job),
        update.priority ? fmt::format(", priority {}", job.spec().priority())
                        : "");
  } else {
    LOCKSTEP_RETURN_IF_ERROR(WriteJob(cli, job));
  }
  return 0;
}

}  // namespace

void AddJobsUpdate(CLI::App* parent, Cli* cli) {
  auto options = std::make_shared<Options>();
  CLI::App* const app = AddCommand(
      parent, "update",
      "Change the labels of a job, also of one that ended, or the priority of "
      "one that has not",
      "  lockstep jobs update fashion --update-labels team=vision,best=yes\n"
      "  lockstep jobs update fashion --remove-labels best\n"
      "  lockstep jobs update fashion --priority 5\n"
      "\nLabels are removed first, then set. Which priority a submitter may"
      "\nask for is the site's choice (default: 0); admins may ask for any.");
  app->add_option("name", options->name, "The job")
      ->type_name("JOB")
      ->required();
  app->add_option("--update-labels", options->update,
                  "Set these, as team=vision,best=yes")
      ->delimiter(',')
      ->type_name("KEY=VALUE");
  CLI::Option* const remove =
      app->add_option("--remove-labels", options->remove,
                      "Take these away, as team,best")
          ->delimiter(',')
          ->type_name("KEYS");
  app->add_flag("--clear-labels", options->clear, "Take all away")
      ->excludes(remove);
  app->add_option("--priority", options->priority,
                  "Its place in the queue: 0 to 1000, larger first")
      ->check(CLI::Range(0, 1000));
  AddOutputOption(app, cli);
  AddConnectionOptions(app, cli);
  app->callback([=] { cli->run = [=] { return Run(*cli, *options); }; });
}

}  // namespace lockstep
