// Short texts that people and other programs write: sizes, durations, lists,
// addresses, names of files, tokens of pages, reduction plans.
#include "client/cli/parse.h"
#include "common/base/host_port.h"
#include "common/model/names.h"
#include "common/model/reduction_plan.h"
#include "server/query/page.h"
#include "tests/fuzz/fuzz.h"
#include "worker/agent/ports/port_lease.h"
#include "worker/checkpoint/layout.h"

LOCKSTEP_FUZZ_TARGET(text)(const uint8_t* data, size_t size) {
  using namespace lockstep;
  using namespace cli;
  using namespace server;
  using namespace worker;
  using namespace worker::agent;
  const std::string_view text = fuzz::View(data, size);
  if (const auto bytes = ParseBytes(text); bytes.ok()) {
    fuzz::Require(*bytes >= 0, "a size is 0 or more");
  }
  if (const auto duration = ParseDuration(text); duration.ok()) {
    fuzz::Require(*duration >= Duration::zero(), "a duration is 0 or more");
  }
  if (const auto ranks = ParseRanks(text); ranks.ok()) {
    fuzz::Require(ranks->size() <= 100'000, "not too many ranks");
  }
  (void)ParsePair(text);
  if (const auto plan = ParseReductionPlan(text); plan.ok()) {
    // What was all but too long may be too long with its hash.
    if (const auto written = Format(*plan); written.ok()) {
      const auto again = ParseReductionPlan(*written);
      fuzz::Require(again.ok() && *again == *plan, "a plan survives its text");
    }
  }
  (void)ParseSince(text, FromUnixNanos(1'700'000'000'000'000'000));
  if (const auto address = ParseHostPort(text); address.ok()) {
    const auto again = ParseHostPort(FormatHostPort(*address));
    fuzz::Require(again.ok() && *again == *address, "an address has one form");
    (void)IsLoopback(address->host);
  }
  if (const auto range = ParsePortRange(text); range.ok()) {
    fuzz::Require(range->first <= range->last, "a range is one");
    (void)LeasableRanges(*range);
  }
  if (const auto key = checkpoint::ParseCheckpointName(text)) {
    fuzz::Require(checkpoint::CheckpointName(*key) == text, "a name is exact");
  }
  if (const auto key = checkpoint::ParseStagingName(text)) {
    fuzz::Require(checkpoint::StagingName(*key) == text, "a name is exact");
  }
  (void)checkpoint::ParentDir(text);
  (void)checkpoint::BaseName(text);
  (void)IsJobName(text);
  const auto page =
      CutPage({"a", "b", "c"}, static_cast<int32_t>(size), std::string(text));
  fuzz::Require(!page.ok() || (page->begin <= page->end && page->end <= 3),
                "a page lies in the list");
  return 0;
}
