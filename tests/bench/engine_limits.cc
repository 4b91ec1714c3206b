#include "tests/bench/engine_limits.h"

#include <fmt/format.h>

#include <cstdlib>

#include "tests/bench/ceilings.h"
#include "tests/bench/memory_ceiling.h"

namespace lockstep {
namespace {

constexpr uint64_t kMostCached = 64 << 10;

// Bytes a second of "2gbit", as tc takes it; 0 for another unit.
double BytesPerSecond(const std::string& rate) {
  char* unit = nullptr;
  const double number = std::strtod(rate.c_str(), &unit);
  return std::string(unit) == "gbit" ? number * 1e9 / 8 : 0;
}

}  // namespace

void MeasureLimit(const EngineBench& bench, BenchResult* result) {
  const auto bytes = static_cast<double>(result->bytes);
  switch (bench.wire) {
    case Wire::kMemory:
      if (result->bytes >= kUncached) {
        result->limit_seconds = InPlaceLimit(bench.ranks, result->bytes);
        result->limit_what = fmt::format(
            "each of {} buffers read once and written once, at the rate of "
            "q += p on all cores in this run",
            bench.ranks);
      } else if (bench.ranks == 2 && result->bytes <= kMostCached) {
        result->limit_seconds = CacheExchangeSeconds(result->bytes);
        result->limit_what =
            "two threads that write so much, raise a flag, wait for the "
            "other's and add, in this run";
      }
      break;
    case Wire::kLoopback:
      result->limit_seconds = LoopbackExchangeSeconds(result->bytes);
      result->limit_what =
          "so many bytes each way over one connection by plain send and recv, "
          "adding nothing, in this run";
      break;
    case Wire::kLine:
      // Reduce-scatter and all-gather: each rank sends and receives so much.
      result->limit_seconds = 2 * bytes * (bench.ranks - 1) / bench.ranks /
                              BytesPerSecond(bench.line_rate);
      result->limit_what = fmt::format(
          "2 (n - 1) / n of its bytes at the line's {}, headers not counted",
          bench.line_rate);
      break;
  }
}

}  // namespace lockstep
