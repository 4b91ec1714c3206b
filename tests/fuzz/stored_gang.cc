// What a worker daemon finds of its gangs after a restart, and the marks
// beside their logs.
#include "tests/fuzz/fuzz.h"
#include "worker/agent/store/task_store.h"
#include "worker/agent/stream/log_shipper.h"

namespace lockstep::worker::agent {
namespace {

void Decode(std::string_view bytes) {
  const auto gang = DecodeStoredGang(bytes);
  if (!gang.ok()) return;
  const auto again = DecodeStoredGang(EncodeStoredGang(*gang));
  fuzz::Require(again.ok() && *again == *gang, "a gang is read as written");
}

// The shipper reads the marks of a log; here the log itself is not there.
class OneFile final : public FileSystem {
 public:
  explicit OneFile(std::string_view bytes) : bytes_(bytes) {}
  StatusOr<std::string> Read(const std::string&, uint64_t) override {
    return std::string(bytes_);
  }
  StatusOr<std::unique_ptr<WritableFile>> Create(const std::string&,
                                                 mode_t) override {
    return Unavailable("no");
  }
  StatusOr<std::unique_ptr<WritableFile>> OpenAppend(const std::string&,
                                                     mode_t) override {
    return Unavailable("no");
  }
  StatusOr<FileInfo> Stat(const std::string&) override {
    return NotFound("no");
  }
  StatusOr<std::vector<std::string>> List(const std::string&) override {
    return NotFound("no");
  }
  Status MakeDirs(const std::string&, mode_t) override {
    return Unavailable("no");
  }
  Status Rename(const std::string&, const std::string&) override {
    return Unavailable("no");
  }
  Status Remove(const std::string&) override { return Unavailable("no"); }
  Status RemoveAll(const std::string&) override { return Unavailable("no"); }
  Status SyncDir(const std::string&) override { return Unavailable("no"); }

 private:
  const std::string_view bytes_;
};

void Ship(std::string_view marks, uint64_t acked) {
  OneFile files(marks);
  LogShipper shipper({}, &files);
  const RankRef ref{{"mnist", 3}, 0};
  shipper.Add(ref, "uid", "/nonexistent/log");
  shipper.OnAck({"mnist", 3, 0, acked, false}, MonoTime());
  (void)shipper.Take(MonoTime());
  shipper.OnReconnect();
  (void)shipper.Take(MonoTime());
}

}  // namespace
}  // namespace lockstep::worker::agent

LOCKSTEP_FUZZ_TARGET(stored_gang)(const uint8_t* data, size_t size) {
  using namespace lockstep;
  using namespace worker::agent;
  const std::string_view bytes = fuzz::View(data, size);
  const std::string fixed = fuzz::FixEnvelope(bytes);
  Decode(bytes);
  Decode(fixed);
  const uint64_t acked = size == 0 ? 0 : uint64_t{data[size - 1]} << 3;
  Ship(bytes, acked);
  Ship(fixed, acked);
  return 0;
}
