// A job of two ranks whose logs a test writes, and readers of them.
#ifndef LOCKSTEP_TESTS_SERVICE_LOG_STREAM_FIXTURE_H_
#define LOCKSTEP_TESTS_SERVICE_LOG_STREAM_FIXTURE_H_

#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/base/log_line.h"
#include "tests/service/fixture.h"

namespace lockstep::server {

class LogStreamTest : public ServiceTest {
 protected:
  // A job of two ranks on one node, running.
  void SetUp() override {
    ServiceTest::SetUp();
    daemon_ = std::make_unique<DaemonStream>(Worker("a"));
    ASSERT_TRUE(daemon_->Register("a"));
    MustSubmit("j", 2);
    status_ = RunOn(daemon_.get(), "j");
  }
  void TearDown() override {
    daemon_.reset();
    ServiceTest::TearDown();
  }

  // Seconds after the start.
  static std::string Line(int64_t second, const std::string& text,
                          bool full = true, bool err = false) {
    std::string line;
    cri::AppendLogLine(
        {(1000 + second) * 1'000'000'000,
         err ? cri::LogStream::kStderr : cri::LogStream::kStdout, full, text},
        &line);
    return line;
  }
  void Write(int32_t rank, const std::string& bytes, bool end = false,
             Generation generation = 1) {
    uint64_t& offset = offsets_[{rank, generation}];
    const LogAckInfo ack =
        daemon_->SendLog({"j", "uid1", generation, rank, offset, bytes, end});
    offset += bytes.size();
    EXPECT_EQ(ack.offset, offset);
  }

  struct Reader {
    Reader(const std::shared_ptr<grpc::Channel>& channel,
           const v1::StreamLogsRequest& request)
        : stub(v1::JobService::NewStub(channel)), context(Context()) {
      reader = stub->StreamLogs(context.get(), request);
    }
    ~Reader() {
      context->TryCancel();
      (void)End();
    }
    // The next line; nullopt at the end.
    std::optional<v1::LogLine> Next() {
      while (lines.empty()) {
        v1::StreamLogsResponse response;
        if (!reader->Read(&response)) return std::nullopt;
        for (const v1::LogLine& line : response.lines()) lines.push_back(line);
      }
      const v1::LogLine line = lines.front();
      lines.pop_front();
      return line;
    }
    Status End() {
      if (end) return *end;
      while (Next()) {
      }
      end = FromGrpc(reader->Finish());
      return *end;
    }
    std::unique_ptr<v1::JobService::Stub> stub;
    std::unique_ptr<grpc::ClientContext> context;
    std::unique_ptr<grpc::ClientReader<v1::StreamLogsResponse>> reader;
    std::deque<v1::LogLine> lines;
    std::optional<Status> end;
  };
  std::unique_ptr<Reader> Start(v1::StreamLogsRequest request) {
    if (request.name().empty()) request.set_name("j");
    return std::make_unique<Reader>(User("ann", pki::UserRole::kViewer),
                                    request);
  }
  std::vector<std::string> All(const v1::StreamLogsRequest& request = {}) {
    const auto reader = Start(request);
    std::vector<std::string> lines;
    while (const auto line = reader->Next()) {
      lines.push_back(fmt::format("{}:{}", line->rank(), line->text()));
    }
    EXPECT_TRUE(reader->End().ok()) << reader->End().ToString();
    return lines;
  }
  Status Refusal(const v1::StreamLogsRequest& request) {
    return Start(request)->End();
  }

  std::unique_ptr<DaemonStream> daemon_;
  GangStatus status_;
  std::map<std::pair<int32_t, Generation>, uint64_t> offsets_;
};

}  // namespace lockstep::server

#endif  // LOCKSTEP_TESTS_SERVICE_LOG_STREAM_FIXTURE_H_
