// `lockstep top`: what it shows, apart from how it gets there. Pure.
#ifndef LOCKSTEP_CLIENT_CLI_TOP_H_
#define LOCKSTEP_CLIENT_CLI_TOP_H_

#include <map>
#include <string>
#include <vector>

#include "client/cli/text.h"
#include "common/base/clock.h"
#include "lockstep/v1/job.pb.h"
#include "lockstep/v1/node.pb.h"
#include "lockstep/v1/task.pb.h"

namespace lockstep {

// The cluster at one moment.
struct TopSample {
  WallTime time;
  // As listed, newest first; among those that have ended only a few.
  std::vector<v1::Job> jobs;
  std::vector<v1::Node> nodes;
};

// What is shown: the newest sample, and what two of them tell together.
class TopState {
 public:
  void Take(TopSample sample);
  // The coordinator cannot be asked: what is shown gets old.
  void Fail(const std::string& trouble) { trouble_ = trouble; }

  bool empty() const { return empty_; }
  const TopSample& sample() const { return sample_; }
  const std::string& trouble() const { return trouble_; }
  // What the job's chief did between the last two samples of one generation;
  // of its whole attempt where there is only one.
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

enum class TopScreen { kJobs, kNodes };

// What keys have chosen.
struct TopView {
  TopScreen screen = TopScreen::kJobs;
  // An index into the screen's sort orders, of any value: it wraps.
  int sort = 0;
  bool reverse = false;
  // Lines of the table that are above the screen; RenderTop clamps it.
  int scroll = 0;
  // Who answers; empty: not shown.
  std::string address;
};

// A screen of at most `height` lines, none wider than `width`, without
// newlines: heading, table, and in the last line the keys.
std::vector<std::string> RenderTop(const TopState& state, TopView* view,
                                   int width, int height, WallTime now,
                                   const Style& style);

// One frame for scripts: heading, jobs and nodes, all of them, no colour.
// Ends with a newline.
std::string RenderTopBatch(const TopState& state, const TopView& view,
                           int width, WallTime now);

// {"time", "jobs": [...], "nodes": [...]}, each as the API has it; one line.
std::string TopJson(const TopSample& sample);

// `width` letters, each phase as wide as its share: c compute, r all-reduce,
// w straggler wait, i input, o optimizer, k checkpoint, e evaluation, . other.
// Blanks where nothing is known. The largest remainders get what rounding
// leaves.
std::string PhaseBar(const v1::PhaseSeconds& phases, int width);
// "[####    ]": `ratio` of `width` cells, clamped to 0..1.
std::string Gauge(double ratio, int width);

}  // namespace lockstep

#endif  // LOCKSTEP_CLIENT_CLI_TOP_H_
