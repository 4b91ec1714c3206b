// The site's table of machines.
#include "common/training/machines_file.h"

#include "tests/fuzz/fuzz.h"

LOCKSTEP_FUZZ_TARGET(machines_file)(const uint8_t* data, size_t size) {
  using namespace lockstep;
  const auto table =
      ParseMachinesFile(std::string(fuzz::View(data, size)), "machines.yaml");
  if (table.ok()) return 0;
  fuzz::Require(table.status().code() == StatusCode::kInvalidArgument,
                "a bad file is INVALID_ARGUMENT");
  fuzz::Require(Message(table.status()).starts_with("machines.yaml"),
                "an error names the file");
  return 0;
}
