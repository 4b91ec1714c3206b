#include "server/page/why_page.h"

#include <fmt/format.h>

#include <algorithm>

#include "common/model/rank_list.h"
#include "server/core/stack_groups.h"
#include "server/core/verdict.h"
#include "server/page/html.h"
#include "server/page/status_page.h"

namespace lockstep::server {
namespace {

constexpr size_t kFramesShown = 16;

void Frames(const std::vector<StackFrame>& frames, Html* html) {
  if (frames.empty()) return;
  html->Raw("<pre>");
  for (size_t i = 0; i < std::min(frames.size(), kFramesShown); ++i) {
    const StackFrame& frame = frames[i];
    html->Text(
        fmt::format("{}  {}{}\n", frame.function,
                    frame.file.empty() ? frame.module : frame.file,
                    frame.line > 0 ? fmt::format(":{}", frame.line) : ""));
  }
  if (frames.size() > kFramesShown) {
    html->Text(fmt::format("and {} more\n", frames.size() - kFramesShown));
  }
  html->Raw("</pre>\n");
}

void Sentences(const std::string& title, const std::vector<std::string>& list,
               Html* html) {
  if (list.empty()) return;
  html->Element("h3", title).Raw("<ul>\n");
  for (const std::string& sentence : list) html->Element("li", sentence);
  html->Raw("</ul>\n");
}

void Evidence(const EvidenceCalls::Evidence& evidence, Html* html) {
  const JudgedEvidence& judged = evidence.judged;
  if (!judged.ranks.empty()) html->Element("p", judged.verdict.sentence);
  for (const StackGroup& group : judged.groups) {
    html->Raw("<p>")
        .Element("b", RankList(group.ranks))
        .Text((group.odd ? " (not where most are): " : ": ") +
              Describe(group.position))
        .Raw("</p>\n");
    Frames(group.position.frames, html);
  }
  Sentences("What differs", judged.verdict.differences, html);
  for (const RankEvidence& rank : judged.ranks) {
    if (rank.nccl_ras.empty()) continue;
    Sentences("What NCCL says (RAS)", rank.nccl_ras, html);
    break;
  }
  Sentences("Notes", evidence.notes, html);
  Sentences("What would help", judged.verdict.hints, html);
}

}  // namespace

std::string VerdictOf(const JobSnapshot& snapshot) {
  const Job& job = *snapshot.job;
  if (job.state == JobState::kFailed) {
    // Its ranks ended by the stop, which is no cause.
    if (const auto failure = FirstFailure(job);
        failure && failure->rank >= 0 && job.cause.reason != Reason::kStalled) {
      return failure->cause.message;
    }
  }
  if (snapshot.waiting && !snapshot.waiting->message.empty()) {
    return snapshot.waiting->message;
  }
  const std::string why = WhyOf(job.state, job.cause);
  return why.empty()
             ? fmt::format("It is {}, for no other reason.", Name(job.state))
             : why;
}

http::HttpResponse WhyPage(const std::string& cluster,
                           const JobSnapshot& snapshot,
                           const std::vector<WhyPart>& parts,
                           const std::vector<int32_t>& others) {
  const Job& job = *snapshot.job;
  const std::string title = job.spec.name + ": why";
  Html html;
  html.Raw(PageHead(cluster, title));
  html.Raw("<nav>").Link("/jobs", job.spec.name).Raw("</nav>\n");
  html.Element("p", VerdictOf(snapshot), StateClass(Name(job.state)));
  for (const WhyPart& part : parts) {
    html.Element("h2", part.title);
    if (part.evidence.ok()) {
      Evidence(*part.evidence, &html);
      html.Raw(fmt::format(
          "<p><a href=\"/jobs/{}/evidence.json?{}\" download>Download all of "
          "it</a> as JSON: processes, threads, sockets, readings.</p>\n",
          EscapePath(job.spec.name), part.parameter));
    } else {
      html.Element("p", Message(part.evidence.status()), "dim");
    }
  }
  for (const int32_t attempt : others) {
    html.Raw(fmt::format(
        "<p><a href=\"/jobs/{}/why?attempt={}\">Evidence of attempt {}</a> is "
        "kept, too.</p>\n",
        EscapePath(job.spec.name), attempt, attempt));
  }
  if (!IsFinal(job.state)) {
    html.Raw(fmt::format(
        "<p><a href=\"/jobs/{}/why?now=1\">Look at its ranks now</a>: their "
        "stacks are read where they run, which takes up to 7 s.</p>\n",
        EscapePath(job.spec.name)));
  }
  EventTable(job.events, &html);
  return HtmlPage(title + " - " + cluster, html.str(), 200, Refresh::kNever);
}

}  // namespace lockstep::server
