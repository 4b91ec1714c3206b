// Rows of the coordinator's store, of a file that may be damaged or foreign.
#include "server/store/job_rows.h"
#include "server/store/record.h"
#include "tests/fuzz/fuzz.h"

namespace lockstep::server {
namespace {

// What was read can be written, and read again.
void WriteAgain(const Job& job) {
  v1::StoredJob merged;
  for (const JobRow& row : ChangesOf(nullptr, job).written) {
    fuzz::Require(AddRow(row.table, row.record, &merged).ok(),
                  "a row that was written can be read");
  }
  const auto again = DecodeJob(merged);
  fuzz::Require(again.ok(), "a job that was read can be read again");
  (void)ToJobMessage(*again);
}

// Rows of a job: a table, a length and a record each.
void ReadRows(std::string_view bytes) {
  v1::StoredJob merged;
  while (!bytes.empty()) {
    const JobTable table =
        kAllJobTables[fuzz::TakeChoice(&bytes) % std::size(kAllJobTables)];
    const size_t low = fuzz::TakeChoice(&bytes);
    const size_t high = fuzz::TakeChoice(&bytes);
    const std::string_view record = bytes.substr(0, 256 * high + low);
    bytes.remove_prefix(record.size());
    if (!AddRow(table, record, &merged).ok()) return;
  }
  if (const auto job = DecodeJob(merged); job.ok()) WriteAgain(*job);
}

}  // namespace
}  // namespace lockstep::server

LOCKSTEP_FUZZ_TARGET(store_record)(const uint8_t* data, size_t size) {
  using namespace lockstep;
  using namespace server;
  std::string_view bytes = fuzz::View(data, size);
  switch (fuzz::TakeChoice(&bytes) % 4) {
    case 0:
      if (const auto job = DecodeJobOfSchema4(bytes); job.ok()) {
        WriteAgain(*job);
      }
      break;
    case 1:
      if (const auto node = DecodeNode(bytes); node.ok()) {
        fuzz::Require(DecodeNode(EncodeNode(*node)).ok(),
                      "a node that was read can be read again");
      }
      break;
    case 2:
      if (const auto request = DecodeRequest(bytes); request.ok()) {
        fuzz::Require(DecodeRequest(EncodeRequest(*request)).ok(),
                      "a request that was read can be read again");
      }
      break;
    default:
      ReadRows(bytes);
  }
  return 0;
}
