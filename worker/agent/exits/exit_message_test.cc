#include "worker/agent/exits/exit_message.h"

#include <gtest/gtest.h>

#include "common/base/log_line.h"

namespace lockstep::worker::agent {
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
  return MessageOfLog(Log(text), crashed).message;
}
std::string Location(std::string_view text, bool crashed = false) {
  return MessageOfLog(Log(text), crashed).location;
}
std::string ErrorFileWords(std::string_view json) {
  return MessageOfErrorFile(json).message;
}

TEST(ExitWordsTest, TheErrorFileOfTorchHasTwoShapes) {
  EXPECT_EQ(
      ErrorFileWords(
          R"({"message": {"message": "RuntimeError: boom",)"
          R"("extraInfo": {"py_callstack": "T", "timestamp": "1622000000"}}})"),
      "RuntimeError: boom");
  EXPECT_EQ(
      ErrorFileWords(R"({"message": "ValueError: bad\nmore", "timestamp": 1})"),
      "ValueError: bad");
  EXPECT_EQ(
      ErrorFileWords(R"({"message": {"message":)"
                     R"("RuntimeError: Error(s) in loading:\n\tone\n\ttwo"}})"),
      "RuntimeError: Error(s) in loading: one two");
}

TEST(ExitWordsTest, TheErrorFileOfTorchSaysWhere) {
  EXPECT_EQ(MessageOfErrorFile(
                R"({"message": {"message": "ValueError: bad", "extraInfo":)"
                R"({"py_callstack": "Traceback (most recent call last):\n)"
                R"(  File \"/usr/lib/python3.11/site-packages/torch/x.py\",)"
                R"( line 355, in wrapper\n    return f()\n)"
                R"(  File \"/srv/train.py\", line 12, in main\n    g()\n)"
                R"(ValueError: bad\n", "timestamp": "1622000000"}}})"),
            (ExitMessage{"ValueError: bad", "train.py:12"}));
  for (const char* text :
       {R"({"message": {"message": "x", "extraInfo": 7}})",
        R"({"message": {"message": "x", "extraInfo": {"py_callstack": 7}}})",
        R"({"message": {"message": "x"}})", R"({"message": "x"})"}) {
    EXPECT_EQ(MessageOfErrorFile(text), (ExitMessage{"x", ""})) << text;
  }
}

TEST(ExitWordsTest, AnErrorFileThatIsNoneSaysNothing) {
  for (const char* text :
       {"", "{", "[]", "7", R"({"message": 7})", R"({"message": {}})",
        R"({"message": {"message": 7}})", R"({"message": "<NONE>"})",
        R"({"other": "x"})", "\xff\xfe"}) {
    EXPECT_EQ(ErrorFileWords(text), "") << text;
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
  EXPECT_EQ(MessageOfLog(log, false).message, "OSError: disk");
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

TEST(ExitWordsTest, ASentenceOfSeveralLinesIsNotCutInItsMiddle) {
  EXPECT_EQ(
      Words("Traceback (most recent call last):\n"
            "  File \"train.py\", line 3, in <module>\n"
            "ValueError: Attempt to convert a value (PerReplica:{\n"
            "  0: <tf.Tensor: shape=(), dtype=int32, numpy=1>,\n"
            "\n"
            "  1: <tf.Tensor: shape=(), dtype=int32, numpy=2>\n"
            "}) with an unsupported type (<class 'PerReplica'>) to a Tensor.\n"
            "Done.\n"),
      "ValueError: Attempt to convert a value (PerReplica:{ 0: <tf.Tensor: "
      "shape=(), dtype=int32, numpy=1>, 1: <tf.Tensor: shape=(), dtype=int32, "
      "numpy=2> }) with an unsupported type (<class 'PerReplica'>) to a "
      "Tensor.");
  EXPECT_EQ(Words("  File \"a.py\", line 1\n    f(\n     ^\n"
                  "SyntaxError: '(' was never closed\nbye\n"),
            "SyntaxError: '(' was never closed");
  EXPECT_EQ(Words("Traceback (most recent call last):\n  File\n"
                  "ValueError: not in [0, 1)\nbye\n"),
            "ValueError: not in [0, 1)");
  // Lines of other parts of the program are not joined to it.
  EXPECT_EQ(Words("Traceback (most recent call last):\n  File\n"
                  "RuntimeError: Graph execution error:\n"
                  "\n"
                  "Detected at node x:\n"
                  "I1123 12:00:00.000000 12 pool.cc:3] closing\n"),
            "RuntimeError: Graph execution error: Detected at node x:");
  const std::string cut =
      Words("Traceback (most recent call last):\n  File\nValueError: (\n" + [] {
        std::string lines;
        for (int i = 0; i < 100; ++i) lines += "  words and more\n";
        return lines;
      }());
  EXPECT_LE(cut.size(), kMaxExitMessage);
  EXPECT_GT(cut.size(), kMaxExitMessage - 20);
  EXPECT_TRUE(cut.ends_with(" words...") || cut.ends_with(" and...") ||
              cut.ends_with(" more..."))
      << cut;
}

TEST(ExitWordsTest, WhereAnExceptionWasRaised) {
  EXPECT_EQ(Location("Traceback (most recent call last):\n"
                     "  File \"/srv/lib.py\", line 7, in <module>\n"
                     "ValueError: first\n"
                     "\n"
                     "Traceback (most recent call last):\n"
                     "  File \"<frozen runpy>\", line 198, in run\n"
                     "  File \"/srv/app/train.py\", line 3, in <module>\n"
                     "    f()\n"
                     "  File \"/srv/app/net.py\", line 12, in f\n"
                     "    keras.fit()\n"
                     "  File \"/x/site-packages/keras/a.py\", line 99, in fit\n"
                     "RuntimeError: second\n"),
            "net.py:12");
  EXPECT_EQ(Location("Traceback (most recent call last):\n"
                     "  File \"/usr/lib/python3.11/a.py\", line 3, in f\n"
                     "RuntimeError: in no file of the program\n"),
            "a.py:3");
  EXPECT_EQ(Location("[rank1]: Traceback (most recent call last):\n"
                     "[rank1]:   File \"/srv/a.py\", line 1, in <module>\n"
                     "[rank1]: RuntimeError: boom\n"),
            "a.py:1");
  // The line that does not parse, with and without who imports it.
  EXPECT_EQ(Location("  File \"/srv/a.py\", line 4\n    x y\n      ^\n"
                     "SyntaxError: invalid syntax\n"),
            "a.py:4");
  EXPECT_EQ(Location("Traceback (most recent call last):\n"
                     "  File \"/srv/a.py\", line 1, in <module>\n"
                     "    import b\n"
                     "  File \"/x/site-packages/b.py\", line 4\n    x y\n"
                     "IndentationError: unexpected indent\n"),
            "b.py:4");
  EXPECT_EQ(Location("RuntimeError: nothing says where\n"), "");
  EXPECT_EQ(Location("Traceback (most recent call last):\n"
                     "  File \"\", line x\n  File \"\", line 1\n"
                     "KeyError: 'x'\n"),
            "");
}

TEST(ExitWordsTest, FatalLinesOfLoggers) {
  const ExitMessage jax = MessageOfLog(
      Log("E1123 12:00:00.000000 1234 agent.cc:1] retrying\n"
          "F1123 12:00:00.000000 1234 client.h:99] Terminating process because "
          "the JAX distributed service detected fatal errors. absl::Status: "
          "DEADLINE_EXCEEDED: Deadline Exceeded\n"
          "Additional GRPC error information while calling "
          "/tensorflow.CoordinationService/RegisterTask:\n"
          "*** Check failure stack trace: ***\n"
          "    @     0x7f  (unknown)\n"
          "Fatal Python error: Aborted\n"),
      true);
  EXPECT_EQ(jax.message,
            "Terminating process because the JAX distributed service detected "
            "fatal errors. absl::Status: DEADLINE_EXCEEDED: Deadline Exceeded "
            "Additional GRPC error information while calling "
            "/tensorflow.CoordinationService/RegisterTask:");
  EXPECT_EQ(jax.location, "client.h:99");
  EXPECT_EQ(
      MessageOfLog(Log("2026-01-01 00:00:00.1: F tensorflow/core/x.cc:12] "
                       "no place left\n"),
                   true),
      (ExitMessage{"no place left", "x.cc:12"}));
  EXPECT_EQ(Words("FATAL: the disk is full\nbye\n", true),
            "FATAL: the disk is full");
  EXPECT_EQ(Words("2026-01-01 12:00:00,1 [FATAL] no luck\n", true),
            "2026-01-01 12:00:00,1 [FATAL] no luck");
  // Of a program that leaves with a code, too, but not before an exception.
  EXPECT_EQ(Words("FATAL: the disk is full\n"), "FATAL: the disk is full");
  const std::string raised =
      "Traceback (most recent call last):\n  File\nValueError: raised\n";
  EXPECT_EQ(Words(raised + "FATAL: the disk is full\n"), "ValueError: raised");
  EXPECT_EQ(Words(raised + "FATAL: the disk is full\n", true),
            "FATAL: the disk is full");
  // A process that fails leaves the others, and JAX then misses them.
  const std::string misses =
      "F1123 12:00:00.000000 1234 client.h:99] Terminating process because the "
      "JAX distributed service detected fatal errors.\n";
  EXPECT_EQ(Words(raised + misses, true), "ValueError: raised");
  EXPECT_TRUE(Words(misses + raised, true).starts_with("Terminating process"));
  for (const char* text :
       {"INFO: --log-level FATAL\n", "FATALITIES 3\n", "F1123\n",
        "F1123 12:00:00.000000 1234 file] x\n", "F: x] y\n",
        "W1123 12:00:00.000000 1234 a.cc:1] FATAL: no\n"}) {
    EXPECT_EQ(MessageOfLog(Log(text), true), ExitMessage()) << text;
  }
}

TEST(ExitWordsTest, WhereARuntimeGaveUp) {
  EXPECT_EQ(Location("Fatal Python error: Segmentation fault\n\n"
                     "Current thread 0x7f (most recent call first):\n"
                     "  File \"/srv/a.py\", line 3 in f\n"
                     "  File \"/srv/a.py\", line 9 in <module>\n",
                     true),
            "a.py:3");
  EXPECT_EQ(Location("a.out: src/a.c:3: main: Assertion `x' failed.\n", true),
            "a.c:3");
  EXPECT_EQ(Location("2026-01-01 00:00:00.1: E tensorflow/core/x.cc:12] Check "
                     "failed: a == b\n",
                     true),
            "x.cc:12");
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
  EXPECT_EQ(MessageOfLog("no line of a log\nat all", true), ExitMessage());
}

TEST(ExitWordsTest, PartsAreJoinedAndAllIsBounded) {
  std::string log = Log("Traceback (most recent call last):");
  cri::AppendLogLine({1, cri::LogStream::kStderr, false, "ValueError: "}, &log);
  cri::AppendLogLine({1, cri::LogStream::kStderr, true, "a\x1b[1m\xff"}, &log);
  EXPECT_EQ(MessageOfLog(log, false).message, "ValueError: a?[1m?");
  EXPECT_EQ(Words("Traceback (most recent call last):\nValueError: " +
                  std::string(10'000, 'x'))
                .size(),
            kMaxExitMessage);
  // What is further from the end does not count.
  EXPECT_EQ(
      MessageOfLog(Log("KeyError: 'x'") + Log(std::string(70'000, '-')), false),
      ExitMessage());
}

}  // namespace
}  // namespace lockstep::worker::agent
