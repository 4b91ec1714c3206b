#include "client/cli/describe_spec.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <vector>

#include "client/cli/summary.h"
#include "client/cli/text.h"
#include "client/lib/client.h"
#include "common/model/job.h"
#include "common/model/reduction_plan.h"
#include "common/model/resources.h"

namespace lockstep::cli {
namespace {

bool IsOfGroup(v1::TaskType type) {
  return type == v1::TASK_TYPE_CHIEF || type == v1::TASK_TYPE_WORKER;
}

std::string RoleText(const v1::RoleSpec& role) {
  std::string text = fmt::format("{} {}", role.count(), Text(role.type()));
  if (role.ranks_per_task() > 1) {
    text += fmt::format(" of {} ranks", role.ranks_per_task());
  }
  if (!role.machine().type().empty()) {
    text += " on " + Printable(role.machine().type());
  }
  text += " (" + Text(role.resources()) + " each)";
  if (role.has_container()) {
    text += " in " + Printable(role.container().image());
  }
  return text;
}

std::string RolesText(const v1::JobSpec& spec) {
  std::string text;
  for (const v1::RoleSpec& role : spec.roles()) {
    if (!text.empty()) text += ", ";
    text += RoleText(role);
  }
  return text;
}

// "warn", "restart, after 30 s without a sign of progress"; "" for the default.
std::string HangText(const v1::JobSpec& spec) {
  std::string text(Name(static_cast<HangPolicy>(spec.hang())));
  if (!spec.has_stall_after()) return text;
  if (text.empty()) text = Name(HangPolicy::kWarn);
  return fmt::format("{}, after {} without a sign of progress", text,
                     FormatDuration(ToDuration(spec.stall_after())));
}

// "after 90 s", "never"; "" for the default.
std::string NodeLossText(const v1::JobSpec& spec) {
  if (spec.has_node_lost_timeout()) {
    return "after " + FormatDuration(ToDuration(spec.node_lost_timeout()));
  }
  return std::string(Name(static_cast<NodeLoss>(spec.node_loss())));
}

// "told after 30 m, stopped after 2 h"; "" for the site's times.
std::string IdleText(const v1::JobSpec& spec) {
  std::string text;
  const auto add = [&](const char* what, bool set,
                       const google::protobuf::Duration& time) {
    if (!set) return;
    const Duration after = ToDuration(time);
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", what,
                        after == Duration{} ? std::string("never")
                                            : "after " + FormatDuration(after));
  };
  add("told", spec.has_idle_notice(), spec.idle_notice());
  add("stopped", spec.has_idle_stop(), spec.idle_stop());
  return text;
}

}  // namespace

std::string SpecRows(const v1::JobSpec& spec) {
  // A job in AI Platform's terms has its program in its roles.
  const bool own = spec.argv().empty() && !spec.roles().empty();
  std::string argv;
  for (const std::string& arg : own ? spec.roles(0).argv() : spec.argv()) {
    argv += (argv.empty() ? "" : " ") + Printable(arg);
  }
  std::string text = DescribeRow("kind", Text(spec.kind()));
  text += DescribeRow("tasks", RolesText(spec));
  text += DescribeRow("program", argv);
  for (const v1::Package& package : spec.packages()) {
    text += DescribeRow(
        "package",
        fmt::format("{} ({}, {})", Printable(package.file_name()),
                    FormatBytes(package.bytes()), Printable(package.digest())));
  }
  if (spec.end_with() == v1::END_WITH_ALL) {
    text += DescribeRow("ends with", "all ranks of chief and workers");
  } else if (spec.end_with() == v1::END_WITH_CHIEF) {
    text += DescribeRow("ends with", "the chief");
  }
  text += DescribeRow("when stalled", HangText(spec));
  text += DescribeRow("progress by", Printable(spec.progress_pattern()));
  text += DescribeRow("node lost", NodeLossText(spec));
  text += DescribeRow("when idle", IdleText(spec));
  text += DescribeRow("warm starts", spec.warm_starts() ? "yes" : "");
  if (spec.has_hold()) {
    text += DescribeRow("holds", FormatDuration(ToDuration(spec.hold())));
  }
  if (spec.elastic_min_tasks() > 0 && !spec.rescale()) {
    text += DescribeRow("elastic", fmt::format("from {} complete tasks on",
                                               spec.elastic_min_tasks()));
  }
  text += DescribeRow("pool", Printable(spec.pool()));
  if (!spec.runtime().name().empty()) {
    text += DescribeRow("runtime", Printable(spec.runtime().name() + " (" +
                                             spec.runtime().python() + ")"));
  }
  text += DescribeRow("output", Printable(spec.output_directory()));
  if (spec.job_dir() != spec.output_directory()) {
    text += DescribeRow("job dir", Printable(spec.job_dir()));
  }
  std::vector<std::string> labels;
  for (const auto& [key, value] : spec.labels()) {
    labels.push_back(Printable(key + "=" + value));
  }
  std::sort(labels.begin(), labels.end());
  text += DescribeRow("labels", fmt::format("{}", fmt::join(labels, ", ")));
  return text + DescribeRow("comment", Printable(spec.comment()));
}

std::string SparesRow(const v1::Job& job) {
  if (job.spec().spares() == 0) return "";
  const auto& nodes = job.spare_nodes();
  return DescribeRow("spares",
                     nodes.empty()
                         ? fmt::format("{}, none held", job.spec().spares())
                         : fmt::format("{}, held: {}", job.spec().spares(),
                                       fmt::join(nodes, ", ")));
}

std::string SizeRow(const v1::Job& job) {
  if (!job.spec().rescale() && job.wanted_tasks() == 0) return "";
  int32_t all = 0;
  for (const v1::RoleSpec& role : job.spec().roles()) {
    if (IsOfGroup(role.type())) all += role.count();
  }
  if (!job.spec().rescale()) {
    return DescribeRow("size", fmt::format("{} tasks; resized to {}", all,
                                           job.wanted_tasks()));
  }
  const auto has = std::count_if(
      job.tasks().begin(), job.tasks().end(),
      [](const v1::TaskStatus& task) { return IsOfGroup(task.type()); });
  std::string text = fmt::format("{} of {} tasks; may run with {} to {}", has,
                                 all, job.spec().elastic_min_tasks(), all);
  if (job.wanted_tasks() > 0) {
    text += fmt::format("; resized to {}", job.wanted_tasks());
  }
  return DescribeRow("size", text);
}

std::string ReductionRow(const v1::Job& job) {
  const bool pinned = !job.spec().reduction_plan().empty();
  const auto plan = ParseReductionPlan(job.reduction_plan().empty()
                                           ? job.spec().reduction_plan()
                                           : job.reduction_plan());
  if (!plan.ok()) return "";
  return DescribeRow(
      "reduces",
      fmt::format("by plan {}{}: buckets of {}{}", HashOf(*plan),
                  pinned ? " (pinned)" : "",
                  FormatBytes(static_cast<int64_t>(plan->bucket_bytes)),
                  plan->communicator.empty()
                      ? ""
                      : ", " + Printable(plan->communicator)));
}

std::string ImageRows(const v1::Job& job) {
  std::string text;
  for (const v1::ImageContent& image : job.images()) {
    const std::string& digest =
        image.digest().empty() ? image.id() : image.digest();
    text += DescribeRow(
        "image",
        fmt::format("{} is {}, as first on {}", Printable(image.image()),
                    Printable(digest), Printable(image.node())));
  }
  return text;
}

std::string OutputsText(const v1::Job& job) {
  if (job.outputs().empty()) return "";
  Table table{{"KIND", "SIZE", "PATH"}, {}};
  for (const v1::OutputFile& file : job.outputs()) {
    table.rows.push_back({Printable(file.kind()), FormatBytes(file.bytes()),
                          Printable(file.path())});
  }
  return RenderTable(table);
}

std::string CostRows(const v1::Job& job) {
  std::string text = DescribeRow("bill", BillText(job));
  if (text.empty()) return "";
  double an_hour = 0;
  std::string machines;
  for (const v1::RoleSpec& role : job.spec().roles()) {
    if (!role.machine().has_ml_units_per_hour()) continue;
    an_hour += role.machine().ml_units_per_hour() * role.count();
    machines += fmt::format("{}{} {}", machines.empty() ? "" : ", ",
                            role.count(), Printable(role.machine().type()));
  }
  if (an_hour > 0) {
    text += DescribeRow("ML units",
                        fmt::format("{:.4f} per hour: {}", an_hour, machines));
  }
  return text +
         DescribeRow(
             "counted",
             "resources reserved by its tasks, used or not, from the first "
             "reservation to the last release, over all attempts");
}

}  // namespace lockstep::cli
