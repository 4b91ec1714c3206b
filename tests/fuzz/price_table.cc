// The price table of a site.
#include <cmath>

#include "server/config.h"
#include "tests/fuzz/fuzz.h"

LOCKSTEP_FUZZ_TARGET(price_table)(const uint8_t* data, size_t size) {
  using namespace lockstep;
  using namespace server;
  const fuzz::MemoryFile file(fuzz::View(data, size));
  const auto prices = LoadPrices(file.path());
  if (!prices.ok()) return 0;
  fuzz::Require(std::isfinite(prices->core_hour) && prices->core_hour >= 0,
                "a price is 0 or more");
  for (const auto& [model, price] : prices->gpu_hours) {
    fuzz::Require(std::isfinite(price) && price >= 0, "a price is 0 or more");
  }
  return 0;
}
