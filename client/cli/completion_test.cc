// Completion and manual pages: what walks the tree of commands.
#include "client/cli/completion.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <sstream>

#include "client/lib/fake_coordinator.h"
#include "common/base/file.h"
#include "common/cli/man.h"

namespace lockstep::cli {
namespace {

using std::chrono_literals::operator""s;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::IsSupersetOf;
using ::testing::Not;

std::string Bin() {
  const char* const bin = getenv("LOCKSTEP_BIN");
  return bin ? bin : ".";
}

// What a shell command writes, stderr included.
std::string Shell(const std::string& command, int* code = nullptr) {
  std::string output;
  FILE* const pipe = popen(("exec 2>&1; " + command).c_str(), "r");
  if (!pipe) return "popen failed";
  std::array<char, 4096> bytes;
  while (const size_t n = fread(bytes.data(), 1, bytes.size(), pipe)) {
    output.append(bytes.data(), n);
  }
  const int status = pclose(pipe);
  if (code) *code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  return output;
}

bool Has(const std::string& program) {
  int code = 0;
  Shell("command -v " + program, &code);
  return code == 0;
}

class CompletionTest : public testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/lockstep-test-XXXXXX";
    dir_ = mkdtemp(name);
    env_.out = &out_;
    env_.err = &out_;
    env_.clock = &clock_;
    cli_.env = &env_;
    root_ = BuildCommands(&cli_);
  }
  void TearDown() override { RealFileSystem()->RemoveAll(dir_).IgnoreError(); }

  std::vector<std::string> Words(const std::vector<std::string>& words) {
    std::vector<std::string> out;
    for (const auto& [word, meaning] : Complete(root_, words).words) {
      out.push_back(word);
    }
    return out;
  }
  Completion::Also Also(const std::vector<std::string>& words) {
    return Complete(root_, words).also;
  }

  std::string dir_;
  SystemClock clock_;
  std::ostringstream out_;
  CliEnvironment env_;
  Cli cli_;
  Command root_{"", ""};
};

TEST_F(CompletionTest, Commands) {
  EXPECT_THAT(Words({""}), IsSupersetOf({"jobs", "nodes", "submit", "top"}));
  EXPECT_THAT(Words({"jo"}), ElementsAre("jobs"));
  EXPECT_THAT(Words({"job", "d"}), ElementsAre("describe", "delete"));
  EXPECT_THAT(Words({"nonsense", ""}), IsEmpty());
  EXPECT_THAT(Words({}), Contains("jobs"));
}

TEST_F(CompletionTest, OptionsAndTheirValues) {
  EXPECT_THAT(Words({"jobs", "list", "--lim"}), ElementsAre("--limit"));
  EXPECT_THAT(Words({"jobs", "list", "-o", "j"}), ElementsAre("json", "jsonl"));
  EXPECT_THAT(Words({"jobs", "list", "--color=n"}),
              ElementsAre("--color=never"));
  // As bash hands it over.
  EXPECT_THAT(Words({"jobs", "list", "--color", "=", "n"}),
              ElementsAre("never"));
  EXPECT_THAT(Words({"jobs", "list", "--color", "="}),
              ElementsAre("auto", "always", "never"));
  EXPECT_THAT(Words({"jobs", "list", "--state", "running,q"}),
              ElementsAre("running,queued"));
  EXPECT_THAT(Words({"nodes", "list", "--state", "dr"}),
              ElementsAre("draining", "drained"));
  EXPECT_THAT(Words({"cert", "issue", ""}),
              ElementsAre("worker", "user", "coordinator"));
  EXPECT_THAT(Words({"cert", "issue", "user", ""}), IsEmpty());
  EXPECT_THAT(Words({"--help-m"}), IsEmpty());
}

TEST_F(CompletionTest, NamesAndPaths) {
  EXPECT_EQ(Also({"jobs", "describe", ""}), Completion::Also::kJobs);
  EXPECT_EQ(Also({"jobs", "cancel", "a", "b", "-o", "json", ""}),
            Completion::Also::kJobs);
  EXPECT_EQ(Also({"jobs", "describe", "a", ""}), Completion::Also::kNothing);
  EXPECT_EQ(Also({"nodes", "drain", "h"}), Completion::Also::kNodes);
  EXPECT_EQ(Also({"submit", "-f", ""}), Completion::Also::kFiles);
  EXPECT_EQ(Also({"submit", "--ca", ""}), Completion::Also::kFiles);
  EXPECT_EQ(Also({"local", "up", "--dir", ""}), Completion::Also::kDirs);
  EXPECT_EQ(Also({"submit", "--", "prog", "jobs", ""}),
            Completion::Also::kFiles);
}

TEST_F(CompletionTest, AsksTheCoordinatorButNotForLong) {
  auto server = FakeCoordinator::Start();
  ASSERT_TRUE(server.ok());
  (*server)->Update([](FakeAnswers* a) {
    a->jobs.emplace_back().set_name("fashion-1");
    a->jobs.emplace_back().set_name("other");
    a->nodes.emplace_back().set_name("host-a");
  });
  env_.variables = {{"LOCKSTEP_ADDRESS", (*server)->address()},
                    {"LOCKSTEP_INSECURE_LOOPBACK", "1"}};
  // It is not waited for for long: a busy machine is asked again.
  const auto ask = [&](const std::vector<std::string>& words) {
    const MonoTime deadline = clock_.Now().mono + 60s;
    do {
      out_.str("");
      EXPECT_EQ(RunComplete(words, &env_), 0);
    } while (out_.str().empty() && clock_.Now().mono < deadline);
    return out_.str();
  };
  const std::string jobs = ask({"jobs", "logs", "fa"});
  EXPECT_THAT(jobs, testing::StartsWith("fashion-1\t"));
  EXPECT_THAT(jobs, Not(HasSubstr("other")));
  EXPECT_THAT(ask({"nodes", "describe", ""}), HasSubstr("host-a\t"));
  // 192.0.2.0/24 is nobody's: packets vanish.
  env_.variables["LOCKSTEP_ADDRESS"] = "127.0.0.1:1";
  out_.str("");
  const MonoTime start = clock_.Now().mono;
  EXPECT_EQ(RunComplete({"jobs", "logs", ""}, &env_), 0);
  EXPECT_LT(clock_.Now().mono - start, 3s);
  EXPECT_EQ(out_.str(), "");
}

TEST_F(CompletionTest, InARealBash) {
  auto server = FakeCoordinator::Start();
  ASSERT_TRUE(server.ok());
  (*server)->Update([](FakeAnswers* a) {
    a->jobs.emplace_back().set_name("fashion-1");
    a->jobs.emplace_back().set_name("fashion-2");
  });
  const auto complete = [&](const std::string& words, int index) {
    return Shell("env -i PATH=\"" + Bin() + ":$PATH\" HOME=" + dir_ +
                 " LOCKSTEP_ADDRESS=" + (*server)->address() +
                 " LOCKSTEP_INSECURE_LOOPBACK=1 bash --norc -euc '"
                 "source <(lockstep completion bash); cd " +
                 dir_ + "; COMP_WORDS=(" + words +
                 "); COMP_CWORD=" + std::to_string(index) +
                 "; _lockstep; printf \"%s\\n\" \"${COMPREPLY[@]}\"'");
  };
  ASSERT_EQ(access((Bin() + "/lockstep").c_str(), X_OK), 0) << Bin();
  EXPECT_EQ(complete("lockstep jo", 1), "jobs\n");
  // It does not wait for long for the coordinator: a busy machine is asked
  // again.
  const MonoTime deadline = clock_.Now().mono + 60s;
  std::string jobs;
  do {
    jobs = complete("lockstep jobs describe fash", 3);
  } while (jobs != "fashion-1\nfashion-2\n" && clock_.Now().mono < deadline);
  EXPECT_EQ(jobs, "fashion-1\nfashion-2\n");
  EXPECT_EQ(complete("lockstep jobs list --color = a", 5), "auto\nalways\n");
  ASSERT_TRUE(RealFileSystem()->WriteAtomic(dir_ + "/my job.yaml", "x").ok());
  EXPECT_EQ(complete("lockstep submit -f my", 3), "my job.yaml\n");
  EXPECT_EQ(Shell("bash -n <<'E'\n" + CompletionScript("bash") + "E"), "");
}

TEST_F(CompletionTest, OtherShellsCanReadTheirScripts) {
  for (const std::string shell : {"zsh", "fish"}) {
    EXPECT_THAT(CompletionScript(shell), HasSubstr("lockstep __complete"));
    if (!Has(shell)) continue;
    const std::string path = dir_ + "/script";
    ASSERT_TRUE(
        RealFileSystem()->WriteAtomic(path, CompletionScript(shell)).ok());
    EXPECT_EQ(Shell(shell + " -n " + path), "");
  }
  EXPECT_EQ(CompletionScript("tcsh"), "");
}

// Each page as a file; what man says to it.
std::string Complaints(const std::string& path) {
  std::string text;
  if (Has("groff")) {
    text += Shell("groff -mandoc -Tascii -ww -z -rCHECKSTYLE=0 " + path);
  }
  if (Has("man")) {
    text += Shell(
        "LC_ALL=C MANROFFSEQ= MANWIDTH=80 man --warnings -E UTF-8 "
        "-l -Tutf8 -Z " +
        path + " >/dev/null");
  }
  return text;
}

TEST_F(CompletionTest, ManualPagesAreSound) {
  int pages = 0;
  for (const std::string name :
       {"lockstep", "lockstep-coordinator", "lockstep-worker", "lockstep-train",
        "lockstep-data", "lockstep-bench"}) {
    const std::string program = Bin() + "/" + name;
    // A build may leave the trainer out, or not have made all yet.
    if (access(program.c_str(), X_OK) != 0) continue;
    const std::string path = dir_ + "/" + name + ".1";
    int code = -1;
    EXPECT_EQ(Shell(program + " --help-man > " + path, &code), "") << name;
    EXPECT_EQ(code, 0) << name;
    const std::string page = *RealFileSystem()->Read(path, 1 << 20);
    EXPECT_THAT(page, testing::StartsWith(".TH ")) << name;
    EXPECT_THAT(page, HasSubstr(".SH NAME\n")) << name;
    EXPECT_THAT(page, HasSubstr("\\-\\-version")) << name;
    EXPECT_EQ(Complaints(path), "") << name;
    EXPECT_THAT(Shell(program + " --help"), Not(HasSubstr("help-man")));
    ++pages;
  }
  EXPECT_GE(pages, 1);
}

TEST_F(CompletionTest, HelpOfWhatBenchMeasuresIsLockstepBenchs) {
  if (access((Bin() + "/lockstep-bench").c_str(), X_OK) != 0) {
    GTEST_SKIP() << "no lockstep-bench";
  }
  const std::string bench = Bin() + "/lockstep bench";
  int code = -1;
  EXPECT_THAT(Shell(bench + " step --help", &code), HasSubstr("--parameters"));
  EXPECT_EQ(code, 0);
  EXPECT_THAT(Shell(bench + " model -h", &code), Not(HasSubstr("--pool")));
  EXPECT_EQ(code, 0);
  EXPECT_THAT(Shell(bench + " --help"), HasSubstr("--pool"));
}

TEST_F(CompletionTest, ThePageHasEveryCommandAndOption) {
  const std::string page = ManualPage(root_);
  const std::function<void(const Command&, const std::string&)> check =
      [&](const Command& command, const std::string& full_name) {
        for (const Flag& flag : command.flags) {
          if (flag.hidden) continue;
          for (const std::string& name : flag.Names()) {
            EXPECT_THAT(page, HasSubstr(RoffText(name)));
          }
        }
        for (const Command& child : command.children) {
          const std::string name = full_name + " " + child.name;
          if (child.children.empty()) {
            EXPECT_THAT(page, HasSubstr(RoffText(name) + "\"\n"));
          }
          check(child, name);
        }
      };
  check(root_, root_.name);
}

}  // namespace
}  // namespace lockstep::cli
