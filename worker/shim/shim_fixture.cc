#include "worker/shim/shim_fixture.h"

#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>

#include "common/base/file.h"
#include "worker/shim/log_reader.h"

namespace lockstep::worker::shim {

using std::chrono_literals::operator""s;
using cri::LogLine;
using task::ExitRecord;
using task::ShimSpec;

MonoTime In(Duration d) { return MonotonicNow() + d; }

bool Eventually(const std::function<bool()>& holds) {
  const MonoTime deadline = In(60s);
  while (!holds()) {
    if (MonotonicNow() >= deadline) return false;
    usleep(1000);
  }
  return true;
}

void ShimTest::SetUp() {
  const char* bin = getenv("LOCKSTEP_BIN");
  ASSERT_NE(bin, nullptr) << "set LOCKSTEP_BIN to the folder of the binaries";
  program_ = JoinPath(bin, "lockstep-shim");
  char name[] = "/tmp/lockstep-shim-XXXXXX";
  ASSERT_NE(mkdtemp(name), nullptr);
  dir_ = name;
}
void ShimTest::TearDown() {
  for (const Process& shim : shims_) {
    if (!HasEnded(shim)) (void)SendSignal(shim, SIGKILL);
    (void)WaitExit(shim, In(10s));  // A second time does no harm.
  }
  EXPECT_TRUE(RealFileSystem()->RemoveAll(dir_).ok());
}

std::string ShimTest::Path(const std::string& name) const {
  return JoinPath(dir_, name);
}

task::ShimSpec ShimTest::Spec(const std::string& script) const {
  ShimSpec spec;
  spec.job = "job";
  spec.generation = 1;
  spec.argv = {"/bin/sh", "-c", script};
  spec.env = {"PATH=/usr/bin:/bin", "DIR=" + dir_};
  spec.cwd = dir_;
  spec.log_path = Path("log");
  spec.task_record_path = Path("task");
  spec.exit_record_path = Path("exit");
  spec.socket_path = Path("socket");
  spec.page_path = Path("page");
  spec.nonce = std::string(32, 'n');
  return spec;
}

size_t ShimTest::Start(const task::ShimSpec& spec) {
  StatusOr<Process> shim = StartShim(program_, spec, Path("stderr"));
  EXPECT_TRUE(shim.ok()) << shim.status();
  shims_.push_back(shim.ok() ? *std::move(shim) : Process());
  return shims_.size() - 1;
}

StatusOr<task::ShimReply> WaitForPhase(ShimClient* client,
                                       task::ShimReply::Phase phase,
                                       MonoTime deadline) {
  while (client->last().phase < phase) {
    LOCKSTEP_ASSIGN_OR_RETURN(const auto pushed, client->TakePush());
    if (pushed) continue;
    if (MonotonicNow() >= deadline) {
      return DeadlineExceeded("the shim has not reported that phase");
    }
    pollfd readable = {.fd = client->fd(), .events = POLLIN, .revents = 0};
    poll(&readable, 1, 20);
  }
  return client->last();
}

int ExitCode(const task::ExitRecord& record) {
  switch (record.kind) {
    case task::ExitKind::kExited:
      return WEXITSTATUS(record.wait_status);
    case task::ExitKind::kSignaled:
      return 128 + WTERMSIG(record.wait_status);
    case task::ExitKind::kNotStarted:
      break;
  }
  return record.start_errno == ENOENT ? 127 : 126;
}

int ShimTest::ShimCode(size_t index) {
  const StatusOr<ProcessExit> status = WaitExit(shims_[index], In(60s));
  EXPECT_TRUE(status.ok()) << status.status();
  return status.ok() && status->signal == 0 ? status->code : -1;
}

task::ExitRecord ShimTest::RunToEnd(const task::ShimSpec& spec) {
  const size_t index = Start(spec);
  EXPECT_EQ(ShimCode(index), 0);
  const StatusOr<ExitRecord> record = ReadExitRecord(Path("exit"));
  EXPECT_TRUE(record.ok()) << record.status();
  EXPECT_FALSE(RealFileSystem()->Exists(Path("socket")));
  return record.ok() ? *record : ExitRecord();
}

std::unique_ptr<ShimClient> ShimTest::Connect() {
  auto client =
      ShimClient::Connect(Path("socket"), std::string(32, 'n'), In(60s));
  EXPECT_TRUE(client.ok()) << client.status();
  return client.ok() ? *std::move(client) : nullptr;
}

std::vector<ParsedLine> ShimTest::Log() {
  std::vector<ParsedLine> lines;
  for (uint64_t offset = 0;;) {
    const StatusOr<LogChunk> chunk = ReadLog(Path("log"), offset, 1 << 20);
    if (!chunk.ok() || chunk->bytes.empty()) return lines;
    offset = chunk->next_offset;
    for (size_t at = 0; at < chunk->bytes.size();) {
      const size_t end = chunk->bytes.find('\n', at);
      LogLine line;
      std::string error;
      EXPECT_TRUE(cri::ParseLogLine(
          std::string_view(chunk->bytes).substr(at, end - at), &line, &error))
          << error;
      lines.push_back(
          {line.stream, line.full, std::string(line.text), line.unix_nanos});
      at = end + 1;
    }
  }
}

std::vector<std::string> ShimTest::Texts() {
  std::vector<std::string> texts;
  for (const ParsedLine& line : Log()) texts.push_back(line.text);
  return texts;
}

StatusOr<Process> ShimTest::ProcessIn(const std::string& name) {
  pid_t pid = 0;
  EXPECT_TRUE(Eventually([&] {
    std::ifstream file(Path(name));
    return static_cast<bool>(file >> pid) && file.get() == '\n';
  })) << name;
  LOCKSTEP_ASSIGN_OR_RETURN(const uint64_t start, StartTime(pid));
  return OpenVerified({pid, start});
}

}  // namespace lockstep::worker::shim
