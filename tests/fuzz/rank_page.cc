// The page of a rank, whose program may write anything into it.
#include "worker/task/rank_page.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "tests/fuzz/fuzz.h"

namespace lockstep::worker {
namespace {

void Check(const task::RankPage& page) {
  (void)task::RankPhaseName(page.progress.phase);
  if (!page.has_counters) return;
  const task::RankCounters& c = page.counters;
  for (const double s : c.phase_seconds) {
    fuzz::Require(std::isfinite(s) && s >= 0, "a time is 0 or more");
  }
  for (const double s : c.checkpoint_seconds) {
    fuzz::Require(std::isfinite(s) && s >= 0, "a time is 0 or more");
  }
  fuzz::Require(std::isfinite(c.straggler_lag_seconds), "a lag is finite");
  fuzz::Require(!c.has_loss || std::isfinite(c.last_loss), "a loss is finite");
  fuzz::Require(c.values.size() <= task::kMaxReportedValues, "few values");
  for (const auto& [name, value] : c.values) {
    fuzz::Require(std::isfinite(value), "values are finite");
    fuzz::Require(std::all_of(name.begin(), name.end(),
                              [](char c) { return c >= ' ' && c < 0x7f; }),
                  "names are printable");
  }
}

}  // namespace
}  // namespace lockstep::worker

LOCKSTEP_FUZZ_TARGET(rank_page)(const uint8_t* data, size_t size) {
  using namespace lockstep;
  using namespace worker;
  task::PageWords words{};
  if (size > 0) std::memcpy(words.data(), data, std::min(size, sizeof(words)));
  task::RankPage page;
  std::string error;
  if (task::DecodePage(words, &page, &error)) Check(page);
  // As a file, of whatever length.
  const fuzz::MemoryFile file(fuzz::View(data, size));
  const auto reader = task::PageReader::Open(file.path(), &error);
  if (reader == nullptr) return 0;
  task::RankPage read;
  if (reader->Read(&read, &error) == task::PageReader::Result::kOk) Check(read);
  fuzz::Require(
      reader->ReadLast(&read, &error) != task::PageReader::Result::kBusy,
      "the last reading is never busy");
  return 0;
}
