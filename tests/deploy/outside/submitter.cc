// submitter ADDRESS RANK-PROGRAM: a native job of two ranks, to its end.
#include <lockstep/client.h>

#include <cstdio>
#include <string>

namespace lc = lockstep::client;

static int Fail(const char* what, const absl::Status& status) {
  std::fprintf(stderr, "%s: %s (%s)\n", what, status.ToString().c_str(),
               lc::ReasonOf(status).c_str());
  return 1;
}

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  auto connected =
      lc::Client::Connect({.address = argv[1], .insecure_loopback = true});
  if (!connected.ok()) return Fail("connect", connected.status());
  lc::Client& client = **connected;
  if (auto bad = client.Submit("{\"nam\": 1}"); bad.ok()) {
    std::fprintf(stderr, "nonsense was taken\n");
    return 1;
  }
  const auto nodes = client.ListNodes();
  if (!nodes.ok()) return Fail("nodes", nodes.status());
  if (nodes->size() != 1 || (*nodes)[0].state != "READY") return 3;
  const auto job = client.Submit(
      R"({"name": "line", "kind": "JOB_KIND_NATIVE",
          "roles": [{"type": "TASK_TYPE_CHIEF", "count": 1,
                     "ranksPerTask": 1, "resources": {"cpus": 0.5}},
                    {"type": "TASK_TYPE_WORKER", "count": 1,
                     "ranksPerTask": 1, "resources": {"cpus": 0.5}}],
          "argv": [")" +
      std::string(argv[2]) + R"("]})");
  if (!job.ok()) return Fail("submit", job.status());
  const auto ended = client.Wait("line", std::chrono::seconds(60));
  if (!ended.ok()) return Fail("wait", ended.status());
  std::printf("%s: %s\n", ended->state.c_str(), ended->message.c_str());
  int lines = 0;
  const auto logged = client.Logs("line", true, [&](const lc::LogLine& line) {
    std::printf("[%d %s] %s\n", line.rank, line.stream.c_str(),
                line.text.c_str());
    ++lines;
    return true;
  });
  if (!logged.ok()) return Fail("logs", logged);
  if (const auto none = client.Get("no-such-job");
      none.status().code() != absl::StatusCode::kNotFound) {
    return Fail("get", none.status());
  }
  const auto jobs = client.List();
  if (!jobs.ok() || jobs->size() != 1 || !(*jobs)[0].final) return 4;
  return ended->state == "SUCCEEDED" && lines >= 2 ? 0 : 5;
}
