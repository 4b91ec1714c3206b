// The display of `lockstep top`, apart from its data collection. Pure.
#ifndef LOCKSTEP_CLIENT_CLI_TOP_H_
#define LOCKSTEP_CLIENT_CLI_TOP_H_

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "client/cli/text.h"
#include "common/base/clock.h"
#include "lockstep/v1/job.pb.h"
#include "lockstep/v1/node.pb.h"
#include "lockstep/v1/task.pb.h"

namespace lockstep::cli {

// The cluster at one time.
struct TopSample {
  WallTime time;
  // As listed, newest first, with only a few of the finished jobs.
  std::vector<v1::Job> jobs;
  std::vector<v1::Node> nodes;
  // With its ranks: the job that is looked at.
  std::optional<v1::Job> focus = std::nullopt;
};

// The displayed data: the newest sample, and differences of two.
class TopState {
 public:
  void Take(TopSample sample);
  // The coordinator is unavailable, so the display becomes old.
  void Fail(const std::string& trouble) { trouble_ = trouble; }

  bool empty() const { return empty_; }
  const TopSample& sample() const { return sample_; }
  const std::string& trouble() const { return trouble_; }
  // Returns the chief's phases between the last two samples of one generation,
  // or over its whole attempt if there is only one.
  v1::PhaseSeconds PhasesOf(const v1::Job& job) const;

 private:
  struct Seen {
    uint64_t generation = 0;
    v1::PhaseSeconds total;
    v1::PhaseSeconds recent;
  };

  bool empty_ = true;
  TopSample sample_;
  std::string trouble_;
  std::map<std::string, Seen> seen_;
};

enum class TopScreen { kJobs, kNodes, kRanks };

// The selections made by keys.
struct TopView {
  TopScreen screen = TopScreen::kJobs;
  // An index into the screen's sort orders; any value, it wraps.
  int sort = 0;
  bool reverse = false;
  // Table lines above the screen; RenderTop clamps it.
  int scroll = 0;
  // The coordinator's address. Empty to omit it.
  std::string address = {};
  // Rows without this text, in any case, are left out. `typing`: keys change
  // it.
  std::string filter = {};
  bool typing = false;
  // The marked row of the jobs; RenderTop clamps it.
  int selected = 0;
  // The job of that row, which RenderTop sets.
  std::string selected_job = {};
  // The job of the screen kRanks.
  std::string job = {};
};

// Returns a screen of at most `height` lines of at most `width`, without
// newlines: heading, table, and the keys in the last line.
std::vector<std::string> RenderTop(const TopState& state, TopView* view,
                                   int width, int height, WallTime now,
                                   const Style& style);

// Returns one frame for scripts: heading, all jobs and nodes, no colour. Ends
// with a newline.
std::string RenderTopBatch(const TopState& state, const TopView& view,
                           int width, WallTime now);

// {"time", "jobs": [...], "nodes": [...]} with the API's messages; one line.
std::string TopJson(const TopSample& sample);

// Returns `width` letters, each phase as wide as its share: c compute, r
// all-reduce, w straggler wait, i input, o optimizer, k checkpoint, e
// evaluation, m compile, . other. Blanks for unknown time. Rounding uses
// largest remainders.
std::string PhaseBar(const v1::PhaseSeconds& phases, int width);
// "[####    ]": `ratio` of `width` cells, clamped to 0..1.
std::string Gauge(double ratio, int width);

}  // namespace lockstep::cli

#endif  // LOCKSTEP_CLIENT_CLI_TOP_H_
