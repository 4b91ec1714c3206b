// `lockstep jobs update`: a job's labels, like gcloud, and its priority.
#include <fmt/format.h>

#include <memory>
#include <ostream>

#include "client/cli/cli.h"
#include "client/cli/follow.h"
#include "client/cli/parse.h"

namespace lockstep::cli {
namespace {

struct UpdateFlags {
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

StatusOr<int> RunUpdate(const Cli& cli, const UpdateFlags& options) {
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

Command JobsUpdateCommand(Cli* cli) {
  const auto options = std::make_shared<UpdateFlags>();
  Command command = LeafCommand(
      "update",
      "Change the labels of a job in any state, or the priority of "
      "an unfinished one",
      "  lockstep jobs update fashion --update-labels team=vision,best=yes\n"
      "  lockstep jobs update fashion --remove-labels best\n"
      "  lockstep jobs update fashion --priority 5\n\n"
      "Labels are removed first, then set. The site limits the priority\n"
      "that submitters may set (default: 0); admins may set any.");
  command.Add("name JOB", &options->name, "The job", Required);
  command.Add("--update-labels KEY=VALUE", &options->update,
              "Set these labels, as team=vision,best=yes", SplitAt(','));
  command.Add("--remove-labels KEYS", &options->remove,
              "Remove these labels, as team,best", SplitAt(','));
  command.Add("--clear-labels", &options->clear, "Remove all labels",
              Excludes({"--remove-labels"}));
  command.Add("--priority", &options->priority,
              "Priority in the queue: 0 to 1000, larger first",
              InRange(0, 1000));
  AddRequestOptions(&command, cli);
  command.run = [=] { return RunUpdate(*cli, *options); };
  return command;
}

}  // namespace lockstep::cli
