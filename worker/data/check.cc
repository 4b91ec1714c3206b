#include "worker/data/check.h"

#include <string_view>

#include "worker/data/example.h"
#include "worker/data/jpeg.h"
#include "worker/data/shards.h"
#include "worker/data/tfrecord.h"

namespace lockstep::worker::data {
namespace {

class Checker {
 public:
  explicit Checker(const CheckOptions& options) : options_(options) {}

  void Check(const std::string& path) {
    shard_ = {};
    shard_.path = path;
    ReadRecords();
    const std::optional<ShardName> name = ParseShardName(path);
    const uint64_t found = shard_.records + damaged_records_;
    if (name && name->count != found) {
      Problem(fmt::format("{}: {} records, but its name says {}", path, found,
                          name->count));
    }
    report_.records += shard_.records;
    report_.bytes += shard_.bytes;
    report_.problems += shard_.problem_count;
    report_.shards.push_back(std::move(shard_));
  }
  CheckReport Take() { return std::move(report_); }

 private:
  void Problem(std::string text) {
    ++shard_.problem_count;
    if (shard_.problems.size() < options_.max_problems) {
      shard_.problems.push_back(std::move(text));
    }
  }

  void ReadRecords() {
    damaged_records_ = 0;
    const auto reader = TfRecordReader::Open(shard_.path);
    if (!reader.ok()) return Problem(Message(reader.status()));
    for (;;) {
      std::string_view record;
      const StatusOr<bool> more = (*reader)->Next(&record);
      Status status = more.status();
      if (more.ok()) {
        if (!*more) break;
        status = Annotate(CheckRecord(record),
                          fmt::format("{}: record {} at byte {}", shard_.path,
                                      shard_.records + damaged_records_,
                                      (*reader)->record_offset()));
      }
      if (status.ok()) {
        ++shard_.records;
        continue;
      }
      Problem(Message(status));
      if (!(*reader)->can_continue()) break;
      ++damaged_records_;
    }
    shard_.bytes = (*reader)->record_offset();
  }

  Status CheckRecord(std::string_view record) {
    LOCKSTEP_ASSIGN_OR_RETURN(const LabelledImage image, DecodeExample(record));
    ImageShape shape = image.shape;
    if (image.format == ImageFormat::kJpeg) {
      LOCKSTEP_ASSIGN_OR_RETURN(shape, ReadJpegShape(image.encoded));
      if (options_.decode) {
        LOCKSTEP_RETURN_IF_ERROR(DecodeJpeg(image.encoded).status());
      }
    }
    ++report_.shapes[fmt::format("{} {}", FormatShape(shape),
                                 FormatName(image.format))];
    ClassReport& label = report_.classes[image.label];
    ++label.samples;
    if (label.name.empty()) label.name = image.class_name;
    return OkStatus();
  }

  const CheckOptions options_;
  CheckReport report_;
  ShardReport shard_;             // The one being read.
  uint64_t damaged_records_ = 0;  // Of it, those whose end is known.
};

}  // namespace

CheckReport CheckShards(const std::vector<std::string>& paths,
                        const CheckOptions& options) {
  Checker checker(options);
  for (const std::string& path : paths) checker.Check(path);
  return checker.Take();
}

}  // namespace lockstep::worker::data
