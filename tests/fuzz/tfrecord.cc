// TFRecord files: as they are, and as the data of one whole record.
#include "worker/data/tfrecord.h"

#include "tests/fuzz/fuzz.h"

namespace lockstep::worker::data {
namespace {

// Returns how many whole records a scan of `bytes` finds.
uint64_t Scan(std::string_view bytes) {
  const fuzz::MemoryFile file(bytes);
  const auto reader = TfRecordReader::Open(file.path());
  if (!reader.ok()) return 0;
  uint64_t records = 0;
  std::string_view record;
  for (;;) {
    const StatusOr<bool> more = (*reader)->Next(&record);
    if (more.ok() && !*more) break;
    if (more.ok()) {
      ++records;
    } else if (!(*reader)->can_continue()) {
      break;
    }
  }
  const auto random = TfRecordFile::Open(file.path());
  if (!random.ok()) return records;
  std::string buffer;
  uint64_t read = 0;
  for (uint64_t i = 0; i < (*random)->records(); ++i) {
    read += (*random)->Read(i, &buffer).ok() ? 1 : 0;
  }
  fuzz::Require(read == records, "both readers find the same records");
  fuzz::Require(!(*random)->Read((*random)->records(), &buffer).ok(),
                "there is no record after the last");
  return records;
}

}  // namespace
}  // namespace lockstep::worker::data

LOCKSTEP_FUZZ_TARGET(tfrecord)(const uint8_t* data, size_t size) {
  using namespace lockstep;
  using namespace worker::data;
  const std::string_view bytes = fuzz::View(data, size);
  (void)ParseTfRecordHeader(bytes);
  (void)CheckTfRecordBody(bytes);
  Scan(bytes);
  std::string whole;
  AppendTfRecord(bytes, &whole);
  fuzz::Require(Scan(whole) == 1, "what was appended is one record");
  // Garbage after a whole record costs that record nothing.
  fuzz::Require(Scan(whole + std::string(bytes)) >= 1, "the first is found");
  return 0;
}
