#include "worker/agent/readings/output_watch.h"

#include <memory>
#include <utility>

#include "worker/agent/work/output_files.h"

namespace lockstep::worker::agent {

void OutputWatch::Look(const RankRef& ref, const std::string& directory) {
  const MonoTime now = loop_->Now().mono;
  Known& known = known_[ref];
  if (known.looks || now < known.next) return;
  known.looks = true;
  thread_.Add([this, ref, directory] {
    auto found = std::make_shared<std::vector<OutputFile>>(FindOutputFiles(
        directory, OutputLimits(), [] { return MonotonicNow(); }));
    loop_->Post(
        lifetime_.Guard([this, ref, found] { Take(ref, std::move(*found)); }));
  });
}

void OutputWatch::Take(const RankRef& ref, std::vector<OutputFile> files) {
  const auto it = known_.find(ref);
  if (it == known_.end()) return;
  Known& known = it->second;
  known.looks = false;
  known.next = loop_->Now().mono + kPeriod;
  const bool changed = known.files && *known.files != files;
  known.files = std::move(files);
  if (changed) changed_(ref);
}

}  // namespace lockstep::worker::agent
