#include "server/logs/severity.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace lockstep::server {
namespace {

struct Case {
  const char* line;
  std::optional<Severity> severity;
};

TEST(SeverityTest, WhatProgramsWrite) {
  const auto debug = Severity::kDebug;
  const auto info = Severity::kInfo;
  const auto warning = Severity::kWarning;
  const auto error = Severity::kError;
  const auto critical = Severity::kCritical;
  const Case cases[] = {
      // glog and absl, with and without the year; PyTorch's C++.
      {"I1121 21:52:24.123456 139 coordination.cc:12] up", info},
      {"E1121 21:52:24.123456 139 coordination.cc:12] lost a task", error},
      {"F20261121 21:52:24.123456 139 x.cc:12] check failed", critical},
      {"[W1121 21:52:24.123456789 socket.cpp:204] cannot connect", warning},
      {"[rank1]:[W1121 21:52:24.1 ProcessGroup.cpp:1] not destroyed", warning},
      // TensorFlow.
      {"2026-11-21 21:52:24.123456: I tensorflow/core/x.cc:1] oneDNN", info},
      {"2026-11-21 21:52:24.123456: W external/local_xla/x.cc:1] a", warning},
      {"2026-11-21 21:52:24.123456: E external/local_xla/x.cc:1] b", error},
      {"WARNING:tensorflow:From x.py:1: y is deprecated", warning},
      // Python's logging.
      {"ERROR:root:it broke", error},
      {"CRITICAL:trainer:it burns", critical},
      {"DEBUG:urllib3:GET", debug},
      {"2026-11-21 21:52:24,123 - trainer - ERROR - it broke", error},
      {"2026-11-21 21:52:24,123 INFO trainer: ERROR is only a word", info},
      {"[2026-11-21 21:52:24,123][WARNING] careful", warning},
      {"[2026-11-21 21:52:24,123] [DEBUG] [x.py:12:run] y", debug},
      {"2026-11-21 21:52:24.123 | ERROR    | mod:run:1 - it broke", error},
      {"21:52:24 WARN  slow", warning},
      {"\x1b[31mERROR\x1b[0m: it broke", std::nullopt},
      {"\x1b[31mERROR: it broke\x1b[0m", error},
      {"[ERROR] it broke", error},
      {"error: no such file", error},
      {"Warning: 3 files", warning},
      // JSON, logfmt.
      {R"({"message": "x", "severity": "ERROR"})", error},
      {R"({"levelname":"warning","msg":"x"})", warning},
      {"time=1 level=error msg=x", error},
      {"sublevel=error", std::nullopt},
      // Exceptions and warnings of Python.
      {"ValueError: bad", error},
      {"torch.cuda.OutOfMemoryError: CUDA out of memory", error},
      {"KeyboardInterrupt", error},
      {"[rank0]: RuntimeError: x", error},
      {"/x/y.py:12: UserWarning: z", warning},
      // Last words.
      {"Fatal Python error: Segmentation fault", critical},
      {"terminate called after throwing an instance of 'x'", critical},
      {"Killed", critical},
      {"x.c:12:3: error: no ;", error},
      {"x.c:12:3: warning: unused", warning},
      // What says nothing.
      {"epoch 3 loss 0.25", std::nullopt},
      {"Error rate 0.12", std::nullopt},
      {"no ERROR here", std::nullopt},
      {"errors: 0", std::nullopt},
      {"MeanSquaredError 0.2", std::nullopt},
      {"MeanAbsoluteError: 0.12", std::nullopt},
      {"Killed 3 stale workers", std::nullopt},
      {"2026-11-21 21:52:24 started", std::nullopt},
      {"", std::nullopt},
      {"\x1b[", std::nullopt},
      {"\xff\xfe\x80", std::nullopt},
  };
  for (const Case& each : cases) {
    EXPECT_EQ(StatedSeverity(each.line), each.severity) << each.line;
  }
}

TEST(SeverityTest, OnlyTheBeginIsRead) {
  const std::string line(1 << 20, 'x');
  EXPECT_EQ(StatedSeverity(line + ": error: y"), std::nullopt);
  EXPECT_EQ(StatedSeverity("ERROR: " + line), Severity::kError);
}

TEST(SeverityTest, ATracebackIsAnErrorToItsEnd) {
  const std::vector<Case> lines = {
      {"step 1", Severity::kInfo},
      {"Traceback (most recent call last):", Severity::kError},
      {"  File \"x.py\", line 1, in <module>", Severity::kError},
      {"    raise Stop('x')", Severity::kError},
      {"trainer.Stop: x", Severity::kError},
      {"", Severity::kInfo},
      {"During handling of the above exception, another exception occurred:",
       Severity::kError},
      {"", Severity::kError},
      {"Traceback (most recent call last):", Severity::kError},
      {"[rank0]:   File \"x.py\", line 1", Severity::kError},
      {"[rank0]: ValueError: x", Severity::kError},
      {"step 2", Severity::kInfo},
  };
  SeverityReader reader;
  for (const Case& each : lines) {
    EXPECT_EQ(reader.Next(each.line), each.severity) << each.line;
  }
  // Whichever of them are skipped.
  for (size_t asked = 0; asked < lines.size(); ++asked) {
    SeverityReader skipping;
    for (size_t i = 0; i < asked; ++i) skipping.Skip(lines[i].line);
    EXPECT_EQ(skipping.Next(lines[asked].line), lines[asked].severity) << asked;
  }
}

}  // namespace
}  // namespace lockstep::server
