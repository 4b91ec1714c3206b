#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <ostream>
#include <vector>

#include "client/cli/cli.h"
#include "client/cli/describe_tasks.h"
#include "client/cli/find.h"
#include "client/cli/follow.h"
#include "client/cli/job_resource.h"
#include "client/cli/job_view.h"
#include "client/cli/resource_format.h"
#include "client/cli/summarize.h"

namespace lockstep::cli {
namespace {

struct DescribeFlags {
  std::string name;
  std::string format;
  bool summarize = false;
  bool reduction_plan = false;
};

// Returns "" if all are healthy or unknown.
std::vector<std::string> BadGpus(const Cli& cli, Client* client,
                                 const v1::Job& job) {
  const auto output = cli.OutputFormat();
  const bool uses_gpus = std::any_of(
      job.tasks().begin(), job.tasks().end(),
      [](const v1::TaskStatus& task) { return !task.gpus().empty(); });
  if (IsFinalState(job.state()) || !uses_gpus || !output.ok() ||
      (*output != Output::kTable && *output != Output::kWide)) {
    return {};
  }
  const auto nodes = client->ListNodes();
  // The job is shown without it.
  if (!nodes.ok()) return {};
  return BadGpusOf(job, *nodes);
}

StatusOr<int> RunDescribe(const Cli& cli, const DescribeFlags& options) {
  ResourceFormat format;
  if (!options.format.empty()) {
    LOCKSTEP_ASSIGN_OR_RETURN(format, ParseResourceFormat(options.format));
  }
  LOCKSTEP_ASSIGN_OR_RETURN(const auto client, cli.Connect());
  LOCKSTEP_ASSIGN_OR_RETURN(const std::string name,
                            FindJob(client.get(), options.name));
  LOCKSTEP_ASSIGN_OR_RETURN(const v1::Job job, client->GetJob(name));
  // The table has a row for it.
  if ((options.summarize || !options.format.empty()) && job.details_hidden()) {
    *cli.env->err << fmt::format("lockstep: hidden details of job {}: {}\n",
                                 name, HiddenText(job));
  }
  if (options.reduction_plan && job.details_hidden()) {
    return PermissionDenied(
        "job {}: only {} and admins may see the reduction plan", name,
        job.owner());
  }
  if (options.reduction_plan) {
    const std::string& plan = job.reduction_plan().empty()
                                  ? job.spec().reduction_plan()
                                  : job.reduction_plan();
    if (plan.empty()) {
      return NotFound(
          "job {} has no reduction plan: one is made by the first steps of a "
          "native job of two ranks or more",
          name);
    }
    *cli.env->out << plan;
  } else if (options.summarize) {
    *cli.env->out << SummarizeJob(job);
  } else if (options.format.empty()) {
    LOCKSTEP_RETURN_IF_ERROR(
        WriteJob(cli, job, BadGpus(cli, client.get(), job)));
  } else if (format.kind == ResourceFormat::Kind::kDefault) {
    format.kind = ResourceFormat::Kind::kYaml;
    *cli.env->out << RenderResources({ServiceFields(job)}, false, format);
  } else {
    *cli.env->out << RenderResources({JobResource(job)}, false, format);
  }
  return 0;
}

}  // namespace

Command JobsDescribeCommand(Cli* cli) {
  const auto options = std::make_shared<DescribeFlags>();
  Command command = LeafCommand(
      "describe",
      "Show a job: state, cause, placement, speed, use, cost and "
      "happened",
      "  lockstep jobs describe fashion\n"
      "  lockstep jobs describe fashion -o json | jq .state\n"
      "  lockstep jobs describe fashion --summarize\n"
      "  lockstep jobs describe fashion --format "
      "'value(state,lockstep.cause.message)'\n"
      "  lockstep jobs describe fashion --reduction-plan > fashion.plan\n\n"
      "-o json and -o yaml print AI Platform's Job resource (jobId, state,\n"
      "createTime, trainingInput ...) with other fields under \"lockstep\".");
  AddJobArgument(&command, &options->name);
  command.Add("--summarize", &options->summarize,
              "Tables of the job, its input and its output");
  command.Add("--reduction-plan", &options->reduction_plan,
              "Print only the reduction plan, for `submit --reduction-plan "
              "FILE`",
              Excludes({"--summarize"}));
  AddFormatOption(&command, &options->format).excludes = {"--summarize",
                                                          "--reduction-plan"};
  AddRequestOptions(&command, cli);
  command.run = [=] { return RunDescribe(*cli, *options); };
  return command;
}

}  // namespace lockstep::cli
