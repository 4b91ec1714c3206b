#include "server/page/compare_page.h"

#include <fmt/format.h>

#include "server/page/html.h"
#include "server/page/job_curves.h"
#include "server/page/page_query.h"
#include "server/page/status_page.h"

namespace lockstep::server {

http::HttpResponse ComparePage(
    const std::string& cluster, const std::vector<std::string>& jobs,
    const std::map<std::string, HistoryPlot>& plots) {
  Html html;
  html.Raw(PageHead(cluster, "Compare")).Raw("<nav>");
  for (const std::string& job : jobs) html.Link("/jobs", job);
  html.Raw("</nav>\n");
  if (jobs.size() < kMaxCompared) {
    html.Raw("<form action=\"/compare\">");
    for (const std::string& job : jobs) {
      html.Raw("<input type=\"hidden\" name=\"job\" value=\"")
          .Text(job)
          .Raw("\">");
    }
    html.Raw(
        "<label>and job <input name=\"job\" size=\"20\"></label>"
        "<button>add</button></form>\n");
  }
  for (const std::string& job : jobs) {
    if (plots.contains(job)) continue;
    html.Element("p", "There are no curves of " + job + ".", "dim");
  }
  html.Element("p", "The times are those since the start of each job.", "dim");
  AddComparedCurves(plots, &html);
  return HtmlPage("Compare - " + cluster, html.str());
}

}  // namespace lockstep::server
