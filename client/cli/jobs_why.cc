#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <ostream>

#include "client/cli/cli.h"
#include "client/cli/describe.h"
#include "client/cli/evidence_text.h"
#include "client/cli/find.h"
#include "client/cli/job_view.h"
#include "client/cli/log_text.h"
#include "client/cli/why_text.h"

namespace lockstep::cli {
namespace {

constexpr int kShownEvents = 8;
constexpr int64_t kShownLines = 20;

struct WhyFlags {
  std::string name;
  // 0: the job as it is.
  int attempt = 0;
  bool all = false;
};

// Everything that the page is made of.
struct Why {
  v1::Job job;
  std::optional<v1::JobEvidence> evidence;
  // Of the newest ended attempt that failed by its ranks, stood still or
  // reached a limit.
  std::optional<v1::JobEvidence> kept;
  std::string verdict;
  // Of the rank that failed first.
  std::vector<v1::LogLine> lines;
};

bool MayRun(const v1::Job& job) {
  return job.state() == v1::JOB_STATE_FORMING ||
         job.state() == v1::JOB_STATE_RUNNING ||
         job.state() == v1::JOB_STATE_FINISHING;
}

// The last lines of the rank whose end is the cause.
Status AddLines(Client* client, Why* why) {
  const auto failure = FirstFailure(why->job);
  if (!failure || why->job.state() != v1::JOB_STATE_FAILED) return OkStatus();
  LogOptions options;
  options.name = why->job.name();
  options.ranks = {failure->rank->rank()};
  options.attempt = failure->attempt;
  options.tail = kShownLines;
  StopToken stop;
  return client->StreamLogs(
      options,
      [&](const v1::LogLine& line) {
        why->lines.push_back(line);
        return true;
      },
      &stop);
}

// What the nodes kept. One that is away must not hide the rest of the page.
void AddKept(const Cli& cli, Client* client, Why* why) {
  if (why->job.details_hidden()) return;
  auto kept = client->KeptEvidence(why->job.name(), 0);
  if (kept.ok()) {
    why->kept = *std::move(kept);
  } else if (kept.status().code() != StatusCode::kFailedPrecondition) {
    *cli.env->err << fmt::format("note: no kept evidence: {}\n",
                                 Printable(Message(kept.status())));
  }
}

StatusOr<Why> Find(const Cli& cli, const WhyFlags& options) {
  LOCKSTEP_ASSIGN_OR_RETURN(const auto client, cli.Connect());
  LOCKSTEP_ASSIGN_OR_RETURN(const std::string name,
                            FindJob(client.get(), options.name));
  Why why;
  LOCKSTEP_ASSIGN_OR_RETURN(why.job, client->GetJob(name));
  if (options.attempt > 0) {
    LOCKSTEP_ASSIGN_OR_RETURN(why.kept,
                              client->KeptEvidence(name, options.attempt));
    why.verdict = why.kept->verdict();
    return why;
  }
  if (MayRun(why.job) && !why.job.details_hidden()) {
    auto evidence = client->CollectEvidence(name, {});
    if (evidence.ok()) {
      why.evidence = *std::move(evidence);
    } else if (evidence.status().code() != StatusCode::kFailedPrecondition) {
      return evidence.status();
    } else {
      // It ended meanwhile.
      LOCKSTEP_ASSIGN_OR_RETURN(why.job, client->GetJob(name));
    }
  }
  AddKept(cli, client.get(), &why);
  why.verdict = WhyVerdict(why.job, why.evidence ? &*why.evidence : nullptr,
                           why.kept ? &*why.kept : nullptr);
  if (const Status lines = AddLines(client.get(), &why); !lines.ok()) {
    *cli.env->err << fmt::format("note: no log lines: {}\n",
                                 Printable(Message(lines)));
  }
  return why;
}

std::string WhyJson(const Why& why) {
  nlohmann::ordered_json json;
  json["job"] = why.job.name();
  json["state"] = Text(why.job.state());
  json["verdict"] = why.verdict;
  json["evidence"] = nullptr;
  if (why.evidence) {
    json["evidence"] = nlohmann::ordered_json::parse(ToJson(*why.evidence));
  }
  json["kept"] = nullptr;
  if (why.kept) {
    json["kept"] = nlohmann::ordered_json::parse(ToJson(*why.kept));
  }
  json["logLines"] = nlohmann::ordered_json::array();
  for (const v1::LogLine& line : why.lines) {
    json["logLines"].push_back(nlohmann::ordered_json::parse(ToJson(line)));
  }
  json["events"] = nlohmann::ordered_json::array();
  for (const v1::Event& event : why.job.events()) {
    json["events"].push_back(nlohmann::ordered_json::parse(ToJson(event)));
  }
  return Dump(json);
}

std::string WhyPage(const Why& why, bool all, const Style& style) {
  std::string text =
      fmt::format("{} {}\n", style.Bold(Printable(why.job.name())),
                  style.State(why.job.state()));
  // Evidence begins with its own verdict.
  if (!why.evidence || why.verdict != why.evidence->verdict()) {
    text += Printable(why.verdict) + "\n";
  }
  if (why.evidence) text += EvidenceText(*why.evidence, all, style);
  if (why.kept) {
    text += DescribeSection(KeptTitle(why.job, *why.kept),
                            EvidenceText(*why.kept, all, style), style);
  }
  std::string lines;
  for (const v1::LogLine& line : why.lines) {
    lines += FormatLogLine(line, {}, style);
  }
  text += DescribeSection("Its last lines", lines, style);
  const auto& events = why.job.events();
  const google::protobuf::RepeatedPtrField<v1::Event> last(
      events.end() - std::min(events.size(), kShownEvents), events.end());
  return text +
         DescribeSection("What happened", FormatEvents(last, true), style);
}

StatusOr<int> RunWhy(const Cli& cli, const WhyFlags& options) {
  LOCKSTEP_ASSIGN_OR_RETURN(const Output output, cli.OutputFormat());
  LOCKSTEP_ASSIGN_OR_RETURN(const Why why, Find(cli, options));
  if (output == Output::kTable || output == Output::kWide) {
    *cli.env->out << WhyPage(why, options.all || output == Output::kWide,
                             cli.OutStyle());
  } else if (output == Output::kYaml) {
    *cli.env->out << JsonToYaml(WhyJson(why));
  } else {
    *cli.env->out << WhyJson(why);
  }
  return 0;
}

}  // namespace

Command JobsWhyCommand(Cli* cli) {
  const auto options = std::make_shared<WhyFlags>();
  Command command = LeafCommand(
      "why", "Say why a job hangs, failed or waits, on one page",
      "  lockstep jobs why fashion\n"
      "  lockstep jobs why fashion --attempt 2\n"
      "  lockstep jobs why fashion -o json > evidence.json\n\n"
      "Of a running job: the rank that the others wait for, or why that\n"
      "cannot be known, and what `jobs stacks` shows. Of a failed one: the\n"
      "rank that failed first, and its last lines. Of an attempt that stood\n"
      "still or reached a limit: what its ranks did then.");
  AddJobArgument(&command, &options->name);
  command.Add("--attempt N", &options->attempt,
              "What ended attempt N did when it stood still or was stopped");
  command.Add("--all", &options->all,
              "Also every thread, process and socket, as -o wide does");
  AddRequestOptions(&command, cli);
  command.run = [=] { return RunWhy(*cli, *options); };
  return command;
}

}  // namespace lockstep::cli
