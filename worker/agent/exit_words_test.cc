#include "worker/agent/exit_words.h"

#include <gtest/gtest.h>

#include "common/base/log_line.h"

namespace lockstep {
namespace {

// A log of these lines on standard error.
std::string Log(std::string_view text,
                cri::LogStream stream = cri::LogStream::kStderr) {
  std::string log;
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(line.size() + 1, text.size()));
    cri::AppendLogLine({1, stream, true, line}, &log);
  }
  return log;
}
std::string Words(std::string_view text, bool crashed = false) {
  return WordsOfLog(Log(text), crashed);
}

TEST(ExitWordsTest, TheErrorFileOfTorchHasTwoShapes) {
  EXPECT_EQ(
      WordsOfErrorFile(
          R"({"message": {"message": "RuntimeError: boom",)"
          R"("extraInfo": {"py_callstack": "T", "timestamp": "1622000000"}}})"),
      "RuntimeError: boom");
  EXPECT_EQ(WordsOfErrorFile(
                R"({"message": "ValueError: bad\nmore", "timestamp": 1})"),
            "ValueError: bad");
  EXPECT_EQ(WordsOfErrorFile(
                R"({"message": {"message":)"
                R"("RuntimeError: Error(s) in loading:\n\tone\n\ttwo"}})"),
            "RuntimeError: Error(s) in loading:  one");
}

TEST(ExitWordsTest, AnErrorFileThatIsNoneSaysNothing) {
  for (const char* text :
       {"", "{", "[]", "7", R"({"message": 7})", R"({"message": {}})",
        R"({"message": {"message": 7}})", R"({"message": "<NONE>"})",
        R"({"other": "x"})", "\xff\xfe"}) {
    EXPECT_EQ(WordsOfErrorFile(text), "") << text;
  }
}

TEST(ExitWordsTest, TheLastExceptionOfPython) {
  EXPECT_EQ(Words("Traceback (most recent call last):\n"
                  "  File \"a.py\", line 1, in <module>\n"
                  "    int('x')\n"
                  "ValueError: first\n"
                  "\n"
                  "During handling of the above exception, another one:\n"
                  "\n"
                  "Traceback (most recent call last):\n"
                  "  File \"a.py\", line 3, in <module>\n"
                  "    f()\n"
                  "    ^^^\n"
                  "INFO: something of another thread\n"
                  "tensorflow.python.framework.errors_impl.UnavailableError: "
                  "Socket closed\n"
                  "Additional GRPC error information\n"),
            "tensorflow.python.framework.errors_impl.UnavailableError: Socket "
            "closed");
  EXPECT_EQ(Words("Traceback (most recent call last):\n  File\n"
                  "KeyboardInterrupt\n"),
            "KeyboardInterrupt");
  EXPECT_EQ(Words("  File \"a.py\", line 1\n    x y\n      ^\n"
                  "SyntaxError: invalid syntax\n"),
            "SyntaxError: invalid syntax");
}

TEST(ExitWordsTest, RanksAreToldByTorchInFrontOfEachLine) {
  EXPECT_EQ(Words("[rank1]: Traceback (most recent call last):\n"
                  "[rank1]:   File \"a.py\", line 1, in <module>\n"
                  "[rank1]: RuntimeError: boom\n"),
            "RuntimeError: boom");
}

TEST(ExitWordsTest, TheWorkersErrorAndNotTorchrunsOfIt) {
  EXPECT_EQ(
      Words("Traceback (most recent call last):\n  File\nValueError: real\n"
            "Traceback (most recent call last):\n  File\n"
            "torch.distributed.elastic.multiprocessing.errors."
            "ChildFailedError: \n====\n"),
      "ValueError: real");
}

TEST(ExitWordsTest, ASentenceThatEndsWithAColonGoesOn) {
  EXPECT_EQ(Words("Traceback (most recent call last):\n  File\n"
                  "RuntimeError: Error(s) in loading state_dict for Net:\n"
                  "\tMissing key(s): \"w\"\n"),
            "RuntimeError: Error(s) in loading state_dict for Net: Missing "
            "key(s): \"w\"");
}

TEST(ExitWordsTest, StreamsAreReadApart) {
  const std::string log =
      Log("Traceback (most recent call last):") +
      Log("Epoch 1: loss 2", cri::LogStream::kStdout) + Log("  File") +
      Log("Fine: is not it", cri::LogStream::kStdout) + Log("OSError: disk");
  EXPECT_EQ(WordsOfLog(log, false), "OSError: disk");
}

TEST(ExitWordsTest, CrashesOfRuntimes) {
  EXPECT_EQ(Words("terminate called after throwing an instance of "
                  "'std::out_of_range'\n  what():  vector\n",
                  true),
            "std::out_of_range: vector");
  EXPECT_EQ(Words("Fatal Python error: Segmentation fault\n\nCurrent thread\n"
                  "Extension modules: a\n",
                  true),
            "Fatal Python error: Segmentation fault");
  EXPECT_EQ(Words("2026-01-01 00:00:00.1: F tensorflow/core/x.cc:12] Check "
                  "failed: a == b (1 vs. 2)\n",
                  true),
            "Check failed: a == b (1 vs. 2)");
  EXPECT_EQ(Words("a.out: a.c:3: main: Assertion `x' failed.\n", true),
            "a.out: a.c:3: main: Assertion `x' failed.");
  EXPECT_EQ(Words("double free or corruption (out)\n", true),
            "double free or corruption (out)");
  // A crash beats an exception that was handled before, and the reverse.
  const char* both =
      "Traceback (most recent call last):\n  File\nValueError: bad\n"
      "terminate called without an active exception\n";
  EXPECT_EQ(Words(both, true), "terminate called without an active exception");
  EXPECT_EQ(Words(both, false), "ValueError: bad");
}

TEST(ExitWordsTest, InterpretersAndParsersOfArguments) {
  EXPECT_EQ(Words("/usr/bin/python3: No module named trainer\n"),
            "/usr/bin/python3: No module named trainer");
  EXPECT_EQ(Words("python3: can't open file '/x.py': [Errno 2] No such file\n"),
            "python3: can't open file '/x.py': [Errno 2] No such file");
  EXPECT_EQ(Words("usage: train.py [-h]\n"
                  "train.py: error: unrecognized arguments: --foo\n"),
            "train.py: error: unrecognized arguments: --foo");
  EXPECT_EQ(Words("bash: line 1: foo: command not found\n"),
            "bash: line 1: foo: command not found");
  EXPECT_EQ(Words("sh: 1: foo: not found\n"), "sh: 1: foo: not found");
}

TEST(ExitWordsTest, WhoCouldNotBindSaysSo) {
  for (const char* words :
       {"OSError: [Errno 98] Address already in use", "listen EADDRINUSE :::80",
        "java.net.BindException: Address already in use (Bind failed)",
        "listen tcp :80: bind: address already in use",
        "DistNetworkError: The server socket has failed to bind to [::]:29500 "
        "(errno: 98 - Address already in use)."}) {
    EXPECT_TRUE(SaysAddressInUse(words)) << words;
  }
  for (const char* words : {"", "Connection refused", "[Errno 97] x"}) {
    EXPECT_FALSE(SaysAddressInUse(words)) << words;
  }
}

TEST(ExitWordsTest, ALogWithoutAReasonSaysNothing) {
  EXPECT_EQ(Words("Epoch 1: loss 2.0\nINFO: saved\nall fine: yes\n"), "");
  EXPECT_EQ(Words(""), "");
  EXPECT_EQ(WordsOfLog("no line of a log\nat all", true), "");
}

TEST(ExitWordsTest, PartsAreJoinedAndAllIsBounded) {
  std::string log = Log("Traceback (most recent call last):");
  cri::AppendLogLine({1, cri::LogStream::kStderr, false, "ValueError: "}, &log);
  cri::AppendLogLine({1, cri::LogStream::kStderr, true, "a\x1b[1m\xff"}, &log);
  EXPECT_EQ(WordsOfLog(log, false), "ValueError: a?[1m?");
  EXPECT_EQ(Words("Traceback (most recent call last):\nValueError: " +
                  std::string(10'000, 'x'))
                .size(),
            kMaxExitWords);
  // What is further from the end does not count.
  EXPECT_EQ(
      WordsOfLog(Log("KeyError: 'x'") + Log(std::string(70'000, '-')), false),
      "");
}

}  // namespace
}  // namespace lockstep
