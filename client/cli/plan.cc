#include "client/cli/plan.h"

#include <fmt/format.h>

#include <ostream>

#include "client/cli/describe.h"

namespace lockstep::cli {
namespace {

// ROLE, TASKS, RANKS, MACHINE, RESERVES.
std::string RolesTable(const v1::JobSpec& spec) {
  std::vector<std::vector<std::string>> rows;
  bool machines = false;
  for (const v1::RoleSpec& role : spec.roles()) {
    machines = machines || role.has_machine();
  }
  for (const v1::RoleSpec& role : spec.roles()) {
    std::vector<std::string> row = {
        Text(role.type()), fmt::format("{}", role.count()),
        fmt::format("{}", std::max(1, role.ranks_per_task()))};
    if (machines) {
      const v1::Machine& machine = role.machine();
      row.push_back(role.has_machine()
                        ? fmt::format("{} ({})", Printable(machine.type()),
                                      Text(machine.nominal()))
                        : "-");
    }
    row.push_back(Text(role.resources()));
    rows.push_back(std::move(row));
  }
  std::vector<std::string> header = {"ROLE", "TASKS", "RANKS EACH"};
  if (machines) header.push_back("MACHINE");
  header.push_back("RESERVES EACH");
  return rows.empty() ? "" : RenderTable(header, rows);
}

std::string PriceText(const v1::SubmitJobResponse& response) {
  std::string text;
  if (response.has_cost_per_hour()) {
    text = fmt::format("{} {} per hour", Number(response.cost_per_hour()),
                       response.currency());
  }
  if (response.has_ml_units_per_hour()) {
    text += fmt::format("{}{} ML units per hour", text.empty() ? "" : ", ",
                        Number(response.ml_units_per_hour()));
  }
  return text.empty() ? "" : "price: " + text + "\n";
}

}  // namespace

std::string FormatPlan(const v1::SubmitJobResponse& response) {
  const v1::Job& job = response.job();
  std::string text = RolesTable(job.spec());
  if (!job.spec().pool().empty()) {
    text += "pool: " + Printable(job.spec().pool()) + "\n";
  }
  if (!text.empty()) text += "\n";
  if (response.never_fits_size() > 0) {
    text += fmt::format("{} can never run here:\n", job.name());
    for (const std::string& reason : response.never_fits()) {
      text += fmt::format("  {}\n", Printable(reason));
    }
  } else if (response.placement_size() > 0) {
    text += FormatPlacement(response.placement());
  } else {
    const v1::Cause& waiting = response.waiting();
    const std::string why = Printable(waiting.message());
    const bool coded = waiting.reason() != v1::REASON_UNSPECIFIED;
    text += fmt::format("{} would wait{}{}{}\n", job.name(),
                        why.empty() ? "" : ": ", why,
                        coded ? " [" + Text(waiting.reason()) + "]" : "");
  }
  return text + PriceText(response);
}

StatusOr<int> WritePlan(const Cli& cli, const v1::SubmitJobResponse& response) {
  LOCKSTEP_ASSIGN_OR_RETURN(const Output output, cli.OutputFormat());
  std::ostream& out = *cli.env->out;
  if (output == Output::kJson) {
    out << ToJson(response);
  } else if (output == Output::kYaml) {
    out << ToYaml(response);
  } else if (output == Output::kName) {
    out << response.job().name() << "\n";
  } else {
    out << FormatPlan(response);
    out << std::flush;
    WriteNotes(cli, {response.notes().begin(), response.notes().end()});
  }
  return response.never_fits_size() > 0 ? kExitUnschedulable : 0;
}

void WriteNotes(const Cli& cli, const std::vector<std::string>& notes) {
  for (const std::string& note : notes) {
    *cli.env->err << "note: " << Printable(note) << "\n";
  }
}

}  // namespace lockstep::cli
