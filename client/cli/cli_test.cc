// The program as a whole, against a coordinator that answers from a table.
#include "client/cli/cli.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <sstream>

#include "client/cli/cli_fixture.h"
#include "client/cli/plan.h"
#include "common/base/file.h"

namespace lockstep::cli {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

// Commands that change or follow something print no data of their own.
bool PrintsData(const std::string& path) {
  for (const char* none :
       {" local down", " local train", " jobs delete", " jobs cp", " jobs logs",
        " jobs stream-logs", " nodes forget", " init", " cert issue",
        " completion", " bench", " context use", " context set",
        " context delete", " exec", " forward", " jobs profile",
        " jobs tensorboard"}) {
    if (path.ends_with(none)) return false;
  }
  return true;
}

void ExpectFormats(const Command& command, const std::string& path) {
  const Flag* const output = command.Find("-o");
  if (!PrintsData(path)) return;
  ASSERT_NE(output, nullptr) << path << " prints data";
  EXPECT_THAT(output->value.one_of, Contains("json")) << path;
}

void WalkCommand(const Command& command, const std::string& path, int* leaves) {
  EXPECT_FALSE(command.description.empty()) << path;
  EXPECT_THAT(command.footer, HasSubstr("Example")) << path;
  const Flag* const help = command.Find("-h");
  EXPECT_TRUE(help && help->IsHelp()) << path;
  const bool leaf = command.children.empty();
  EXPECT_EQ(leaf, command.run != nullptr) << path;
  *leaves += leaf;
  if (leaf) ExpectFormats(command, path);
  for (const Flag& flag : command.flags) {
    EXPECT_FALSE(flag.help.empty()) << path << " " << flag.names;
  }
  for (const Command& child : command.children) {
    WalkCommand(child, path + " " + child.name, leaves);
  }
}

TEST_F(CliTest, EveryCommandHasHelpAndAnExample) {
  Cli cli;
  cli.env = &env_;
  int leaves = 0;
  WalkCommand(BuildCommands(&cli), "lockstep", &leaves);
  EXPECT_EQ(leaves, 50);
}

TEST_F(CliTest, HelpGoesToStdout) {
  EXPECT_EQ(Run({"jobs", "list", "--help"}), 0);
  EXPECT_THAT(out_.str(), HasSubstr("lockstep jobs list"));
  EXPECT_THAT(out_.str(), HasSubstr("--state"));
  EXPECT_EQ(Run({"help", "submit"}), 0);
  EXPECT_THAT(out_.str(), HasSubstr("lockstep submit"));
  EXPECT_THAT(err_.str(), IsEmpty());
}

TEST_F(CliTest, UsageErrors) {
  EXPECT_EQ(Run({}), 2);
  EXPECT_EQ(Run({"jobs"}), 2);
  EXPECT_EQ(Run({"jobs", "lst"}), 2);
  EXPECT_THAT(err_.str(), HasSubstr("lockstep jobs has no command lst; did "
                                    "you mean list?"));
  EXPECT_EQ(Run({"sumbit", "--", "a"}), 2);
  EXPECT_THAT(err_.str(), HasSubstr("did you mean submit?"));
  EXPECT_EQ(Run({"jobs", "list", "--nonsense"}), 2);
  EXPECT_EQ(Run({"jobs", "list", "-o", "xml"}), 2);
  EXPECT_EQ(Run({"jobs", "list", "--", "x"}), 2);
  EXPECT_EQ(Run({"jobs", "describe"}), 2);
  EXPECT_THAT(out_.str(), IsEmpty());
}

TEST_F(CliTest, Version) {
  EXPECT_EQ(Run({"version"}), 0);
  EXPECT_THAT(out_.str(), HasSubstr("lockstep 0."));
  EXPECT_EQ(Run({"--version"}), 0);
  EXPECT_EQ(Run({"version", "-o", "json"}), 0);
  EXPECT_THAT(out_.str(), HasSubstr("{\"version\": \"0."));
}

TEST_F(CliTest, SubmitDetached) {
  EXPECT_EQ(
      Run({"submit", "--name", "a", "--tasks", "2", "--env", "X=1", "--env",
           "Y=2", "--detach", "--", "prog", "--flag", "--", "x"}),
      0)
      << err_.str();
  EXPECT_EQ(out_.str(), "a\n");
  const auto submits = server_->Answers().submits;
  ASSERT_EQ(submits.size(), 1u);
  const v1::JobSpec& spec = submits[0].spec();
  EXPECT_EQ(spec.argv_size(), 4);
  EXPECT_EQ(spec.argv(1), "--flag");
  EXPECT_EQ(spec.argv(2), "--");
  EXPECT_EQ(spec.environment().size(), 2u);
  EXPECT_EQ(spec.roles_size(), 2);
}

TEST_F(CliTest, SubmitWithoutRestarts) {
  for (const char* flag : {"--max-restarts", "--restart-budget"}) {
    EXPECT_EQ(Run({"submit", "--name", "a", flag, "0", "--detach", "--", "p"}),
              0)
        << err_.str();
    const v1::JobSpec spec = server_->Answers().submits.back().spec();
    EXPECT_TRUE(spec.has_restart_budget()) << "else it is the server's";
    EXPECT_EQ(spec.restart_budget(), 0);
  }
}

TEST_F(CliTest, SubmitNotesThatAnImagesDirectoryIsNotKept) {
  const std::string file = JoinPath(dir_, "job.yaml");
  ASSERT_TRUE(RealFileSystem()
                  ->WriteAtomic(file,
                                "name: a\n"
                                "kind: program\n"
                                "roles:\n"
                                "- {type: chief, count: 1, argv: [p], "
                                "container: {image: 'x:1'}}\n")
                  .ok());
  const char* const note = "ranks start in the image's working directory";
  EXPECT_EQ(Run({"submit", "-f", file, "--detach"}), 0) << err_.str();
  EXPECT_THAT(err_.str(), HasSubstr(note));
  EXPECT_EQ(Run({"plan", "submit", "-f", file}), 0) << err_.str();
  EXPECT_THAT(err_.str(), HasSubstr(note));
  EXPECT_EQ(Run({"submit", "-f", file, "--detach", "--workdir", "/srv"}), 0)
      << err_.str();
  EXPECT_THAT(err_.str(), Not(HasSubstr(note)));
}

TEST_F(CliTest, SubmitFollowsToTheEnd) {
  ServeJob(Ended("a", v1::JOB_STATE_SUCCEEDED));
  EXPECT_EQ(Run({"submit", "--name", "a", "--", "prog"}), 0) << err_.str();
  EXPECT_THAT(out_.str(), HasSubstr("a SUCCEEDED"));
  EXPECT_THAT(err_.str(), HasSubstr("job a submitted: 1 task, 1 rank"));
}

TEST_F(CliTest, FailureReturnsTheRanksCodeAndShowsItsLastLines) {
  ServeJob(Ended("a", v1::JOB_STATE_FAILED));
  server_->Update([](FakeAnswers* a) {
    a->lines.emplace_back().set_text("cannot open the data");
  });
  EXPECT_EQ(Run({"jobs", "wait", "a", "-o", "json"}), 3);
  EXPECT_THAT(out_.str(), HasSubstr("\n  \"state\": \"FAILED\""));
  EXPECT_THAT(
      err_.str(),
      HasSubstr("first cause: rank 0 (chief 0 on host-a): exit code 3"));
  EXPECT_THAT(err_.str(), HasSubstr("cannot open the data"));
}

TEST_F(CliTest, WaitTimesOutAndCtrlCDetaches) {
  v1::Job job = Ended("a", v1::JOB_STATE_RUNNING);
  ServeJob(job);
  server_->Update([](FakeAnswers* a) { a->endless = true; });
  EXPECT_EQ(Run({"job", "wait", "a", "--timeout", "50ms", "-q"}), 124);
  EXPECT_THAT(err_.str(), HasSubstr("job a is RUNNING after 50 ms"));
  env_.interrupted = [] { return true; };
  EXPECT_EQ(Run({"jobs", "wait", "a"}), 130);
  EXPECT_THAT(err_.str(), HasSubstr("lockstep jobs wait a"));
}

TEST_F(CliTest, DryRunShowsThePlace) {
  EXPECT_EQ(Run({"submit", "--name", "a", "--dry-run", "--", "prog"}), 0);
  EXPECT_EQ(out_.str(),
            "ROLE   TASKS  RANKS EACH  RESERVES EACH\n"
            "chief  1      1           1 cpu\n\n"
            "TASK     NODE    GPUS\nchief 0  host-a  -\n");
  EXPECT_TRUE(server_->Answers().submits[0].validate_only());
  EXPECT_THAT(server_->Answers().jobs, IsEmpty());
  EXPECT_EQ(Run({"submit", "--pool", "a100", "--dry-run", "--", "prog"}), 0);
  EXPECT_EQ(server_->Answers().submits[1].spec().pool(), "a100");
  EXPECT_THAT(out_.str(), HasSubstr("\npool: a100\n"));
}

TEST_F(CliTest, PlanOfWhatNeverFitsIsShownWithEveryReason) {
  v1::SubmitJobResponse response;
  response.mutable_job()->set_name("a");
  v1::RoleSpec* const role =
      response.mutable_job()->mutable_spec()->add_roles();
  role->set_type(v1::TASK_TYPE_CHIEF);
  role->set_count(1);
  response.add_never_fits("no node has podman or docker");
  response.add_never_fits("a chief task needs 2 V100");
  EXPECT_EQ(FormatPlan(response),
            "ROLE   TASKS  RANKS EACH  RESERVES EACH\n"
            "chief  1      1           nothing\n\n"
            "a can never run here:\n"
            "  no node has podman or docker\n"
            "  a chief task needs 2 V100\n");
}

TEST_F(CliTest, UpdateChangesThePriority) {
  server_->Update(
      [](FakeAnswers* a) { a->jobs = {Ended("a", v1::JOB_STATE_RUNNING)}; });
  EXPECT_EQ(Run({"jobs", "update", "a", "--priority", "7"}), 0) << err_.str();
  const FakeAnswers answers = server_->Answers();
  ASSERT_EQ(answers.updates.size(), 1u);
  EXPECT_EQ(answers.updates[0].priority(), 7);
  EXPECT_EQ(Run({"jobs", "update", "a", "--priority", "1001"}), 2);
  EXPECT_EQ(Run({"jobs", "update", "a"}), 2);
}

TEST_F(CliTest, SubmitFromAFileAndFromStdin) {
  const std::string path = dir_ + "/job.yaml";
  ASSERT_TRUE(
      RealFileSystem()->WriteAtomic(path, "name: filed\nargv: [prog]\n").ok());
  EXPECT_EQ(Run({"submit", "-f", path, "--detach"}), 0) << err_.str();
  EXPECT_EQ(out_.str(), "filed\n");
  in_.str("argv: [prog]\npriorty: 3\n");
  EXPECT_EQ(Run({"submit", "-f", "-", "--detach"}), 2);
  EXPECT_THAT(err_.str(), HasSubstr("stdin:2:1: JobSpec has no field priorty; "
                                    "did you mean priority?"));
  EXPECT_EQ(Run({"submit", "--detach"}), 2);
  EXPECT_THAT(err_.str(), HasSubstr("no program"));
}

TEST_F(CliTest, ExitCodesOfErrors) {
  const auto with = [&](const Status& error) {
    server_->Update([&](FakeAnswers* a) { a->errors = {error}; });
    return Run({"submit", "--detach", "--", "prog"});
  };
  EXPECT_EQ(with(InvalidArgument("bad")), 2);
  EXPECT_EQ(with(PermissionDenied("no")), 4);
  EXPECT_EQ(with(Unauthenticated("who")), 4);
  EXPECT_EQ(with(WithReason(FailedPrecondition("too big"), "NEVER_FITS")), 5);
  EXPECT_THAT(err_.str(), HasSubstr("too big [NEVER_FITS]"));
  EXPECT_EQ(with(AlreadyExists("taken")), 1);
  EXPECT_EQ(Run({"jobs", "describe", "nobody"}), 3);
  server_.reset();
  EXPECT_EQ(Run({"jobs", "list"}), 6);
  EXPECT_THAT(err_.str(), HasSubstr("is it running there"));
  EXPECT_THAT(err_.str(), HasSubstr("`lockstep local up`"));
}

TEST_F(CliTest, JobsListFormats) {
  server_->Update([](FakeAnswers* a) {
    a->jobs = {Ended("a", v1::JOB_STATE_SUCCEEDED),
               Ended("b", v1::JOB_STATE_FAILED),
               Ended("c", v1::JOB_STATE_SUCCEEDED)};
  });
  EXPECT_EQ(Run({"jobs", "list", "-o", "name", "--state", "succeeded"}), 0)
      << err_.str();
  EXPECT_EQ(out_.str(), "a\nc\n");
  EXPECT_EQ(Run({"jobs", "list", "-o", "json"}), 0);
  EXPECT_THAT(out_.str(), HasSubstr("\"jobs\": ["));
  EXPECT_EQ(Run({"jobs", "list", "-o", "yaml"}), 0);
  EXPECT_THAT(out_.str(), HasSubstr("\n    state: FAILED"));
  EXPECT_THAT(out_.str(), HasSubstr("\n      state: JOB_STATE_FAILED"));
  EXPECT_EQ(Run({"jobs", "list", "-o", "wide"}), 0);
  EXPECT_THAT(out_.str(), HasSubstr("OWNER"));
  EXPECT_EQ(Run({"jobs", "list", "--state", "asleep"}), 2);
}

TEST_F(CliTest, ColourOnlyWhereItIsWanted) {
  server_->Update(
      [](FakeAnswers* a) { a->jobs = {Ended("a", v1::JOB_STATE_FAILED)}; });
  EXPECT_EQ(Run({"jobs", "list"}), 0);
  EXPECT_THAT(out_.str(), Not(HasSubstr("\x1b[")));
  EXPECT_EQ(Run({"jobs", "list", "--color", "always"}), 0);
  EXPECT_THAT(out_.str(), HasSubstr("\x1b[31mFAILED"));
}

TEST_F(CliTest, LogsCancelCheckpoint) {
  server_->Update([](FakeAnswers* a) {
    a->jobs = {Ended("a", v1::JOB_STATE_RUNNING)};
    for (int rank = 0; rank < 3; ++rank) {
      v1::LogLine& line = a->lines.emplace_back();
      line.set_rank(rank);
      line.set_text("line of " + std::to_string(rank));
    }
  });
  EXPECT_EQ(Run({"jobs", "logs", "a", "--rank", "1-2", "--tail", "5", "--since",
                 "10m"}),
            0)
      << err_.str();
  EXPECT_EQ(out_.str(), "line of 1\nline of 2\n");
  const auto request = server_->Answers().log_requests.back();
  EXPECT_EQ(request.tail(), 5);
  EXPECT_TRUE(request.has_since());
  EXPECT_EQ(Run({"jobs", "logs", "a", "--rank", "x"}), 2);
  EXPECT_EQ(Run({"jobs", "checkpoint", "a"}), 0);
  EXPECT_THAT(out_.str(), HasSubstr("checkpoint 7 of a"));
  EXPECT_EQ(Run({"jobs", "cancel", "a", "--wait"}), 0);
  EXPECT_EQ(out_.str(), "a CANCELLED\n");
}

TEST_F(CliTest, RestoreToTakesAStepOrTheStart) {
  server_->Update(
      [](FakeAnswers* a) { a->jobs = {Ended("a", v1::JOB_STATE_PLACING)}; });
  EXPECT_EQ(Run({"jobs", "restore-to", "a", "4000"}), 0) << err_.str();
  EXPECT_THAT(out_.str(), HasSubstr("job a resumes from step 4,000"));
  EXPECT_EQ(server_->Answers().restores.back().target().step(), 4000);
  EXPECT_NE(server_->Answers().restores.back().request_id(), "");
  EXPECT_EQ(Run({"jobs", "restore-to", "a", "start"}), 0) << err_.str();
  EXPECT_THAT(out_.str(), HasSubstr("job a starts from the beginning"));
  EXPECT_TRUE(server_->Answers().restores.back().target().from_start());
  for (const char* wrong : {"0", "-4", "12x", "begin", ""}) {
    EXPECT_EQ(Run({"jobs", "restore-to", "--", "a", wrong}), 2) << wrong;
  }
  EXPECT_EQ(server_->Answers().restores.size(), 2u);
}

TEST_F(CliTest, ResizeTakesANumberOfTasks) {
  server_->Update(
      [](FakeAnswers* a) { a->jobs = {Ended("a", v1::JOB_STATE_RUNNING)}; });
  EXPECT_EQ(Run({"jobs", "resize", "a", "--tasks", "2"}), 0) << err_.str();
  EXPECT_THAT(out_.str(), HasSubstr("job a is to have 2 tasks"));
  EXPECT_EQ(server_->Answers().resizes.back().tasks(), 2);
  EXPECT_NE(server_->Answers().resizes.back().request_id(), "");
  EXPECT_EQ(Run({"jobs", "resize", "a"}), 2) << "no number";
  EXPECT_EQ(Run({"jobs", "resize", "a", "--tasks", "two"}), 2);
  EXPECT_EQ(server_->Answers().resizes.size(), 1u);
}

TEST_F(CliTest, CancelGoesOnAfterAnError) {
  server_->Update([](FakeAnswers* a) {
    a->jobs = {Ended("a", v1::JOB_STATE_RUNNING),
               Ended("b", v1::JOB_STATE_RUNNING)};
  });
  EXPECT_EQ(Run({"jobs", "cancel", "a", "nobody", "b", "--wait"}), 3);
  EXPECT_EQ(out_.str(), "a CANCELLED\nb CANCELLED\n");
  EXPECT_THAT(err_.str(), HasSubstr("nobody"));
  EXPECT_EQ(Run({"jobs", "cancel", "a", "b", "-o", "json"}), 0);
  EXPECT_THAT(out_.str(), HasSubstr("\"jobs\": ["));
  EXPECT_EQ(Run({"jobs", "cancel", "a", "b", "-o", "yaml"}), 0);
  EXPECT_THAT(out_.str(), HasSubstr("---\netag: MA==\njobId: a\n"));
  EXPECT_THAT(out_.str(), HasSubstr("\n---\netag: MA==\njobId: b\n"));
}

TEST_F(CliTest, ArgumentsAreUtf8) {
  EXPECT_EQ(Run({"submit", "--detach", "--", "prog", "\xff"}), 2);
  EXPECT_EQ(err_.str(), "lockstep: argument 5 is not UTF-8\n");
  EXPECT_EQ(Run({"submit", "--detach", "--comment", "\xc3", "--", "prog"}), 2);
  EXPECT_THAT(server_->Answers().submits, IsEmpty());
  EXPECT_EQ(Run({"submit", "--detach", "--comment", "g\xc3\xb6", "--", "p"}), 0)
      << err_.str();
}

TEST_F(CliTest, NumbersOutOfRangeAreToldShortly) {
  EXPECT_EQ(Run({"submit", "--tasks", "0", "--", "prog"}), 2);
  EXPECT_THAT(err_.str(), HasSubstr("--tasks: 0 is less than 1\n"));
  EXPECT_EQ(Run({"jobs", "list", "--limit", "-1"}), 2);
  EXPECT_THAT(err_.str(), HasSubstr("--limit: -1 is less than 0\n"));
  EXPECT_EQ(Run({"jobs", "logs", "a", "--tail", "0"}), 2);
  EXPECT_THAT(err_.str(), HasSubstr("--tail: 0 is less than 1\n"));
  EXPECT_EQ(Run({"local", "up", "--timeout", "nan"}), 2);
}

TEST_F(CliTest, SubmitRefusesWhatWouldBeLost) {
  EXPECT_EQ(Run({"submit", "--label", "a=b", "--label", "a=c", "--", "p"}), 2);
  EXPECT_THAT(err_.str(), HasSubstr("a is given twice"));
  EXPECT_EQ(Run({"submit", "--name", "", "--", "p"}), 2);
  EXPECT_THAT(err_.str(), HasSubstr("--name: is empty"));
  EXPECT_THAT(server_->Answers().submits, IsEmpty());
}

TEST_F(CliTest, Nodes) {
  server_->Update([](FakeAnswers* a) {
    v1::Node& node = a->nodes.emplace_back();
    node.set_name("host-a");
    node.set_state(v1::NODE_STATE_READY);
  });
  EXPECT_EQ(Run({"nodes", "list"}), 0);
  EXPECT_THAT(out_.str(), HasSubstr("host-a  READY"));
  EXPECT_EQ(Run({"node", "describe", "host-a", "-o", "json"}), 0);
  EXPECT_THAT(out_.str(), HasSubstr("\"NODE_STATE_READY\""));
  EXPECT_EQ(Run({"nodes", "describe", "host-b"}), 3);
}

TEST_F(CliTest, InitAndCertificates) {
  const std::string pki = dir_ + "/pki";
  EXPECT_EQ(Run({"cert", "issue", "worker", "host-a", "--dir", pki}), 3);
  EXPECT_THAT(err_.str(), HasSubstr("lockstep init"));
  EXPECT_EQ(Run({"init", "--dir", pki, "--cluster", "lab"}), 0) << err_.str();
  EXPECT_EQ(out_.str(), pki + "\n");
  EXPECT_EQ(Run({"init", "--dir", pki}), 1);
  EXPECT_EQ(Run({"cert", "issue", "worker", "host-a", "--dir", pki}), 0);
  EXPECT_EQ(out_.str(), pki + "/worker-host-a\n");
  EXPECT_TRUE(RealFileSystem()->Exists(pki + "/worker-host-a/tls.key"));
  EXPECT_TRUE(RealFileSystem()->Exists(pki + "/coordinator/tls.crt"));
  EXPECT_EQ(Run({"cert", "issue", "worker", "host-a", "--dir", pki}), 1);
  EXPECT_THAT(err_.str(), HasSubstr("--force"));
  EXPECT_EQ(Run({"cert", "issue", "worker", "host-a", "--dir", pki, "--force"}),
            0);
  EXPECT_EQ(Run({"cert", "issue", "worker", "host-b", "--role", "viewer",
                 "--dir", pki}),
            2);
  EXPECT_EQ(Run({"cert", "issue", "user", "ann", "--role", "viewer", "--dir",
                 pki, "--to", "ann"}),
            0);
  EXPECT_EQ(out_.str(), dir_ + "/ann\n");
  // Folders above it are made.
  EXPECT_EQ(Run({"cert", "issue", "user", "bob", "--dir", pki, "--to",
                 "keys/of/bob"}),
            0)
      << err_.str();
  EXPECT_TRUE(RealFileSystem()->Exists(dir_ + "/keys/of/bob/tls.key"));
  const std::string deep = dir_ + "/a/b/pki";
  EXPECT_EQ(Run({"init", "--dir", deep, "--cluster", "lab"}), 0) << err_.str();
  EXPECT_EQ(Run({"cert", "issue", "worker", "host-a", "--dir", deep}), 0);
  EXPECT_EQ(Run({"cert", "issue", "worker", "Bad_Name", "--dir", pki}), 2);
  EXPECT_EQ(Run({"cert", "issue", "user", "ann", "--role", "king"}), 2);
}

TEST_F(CliTest, LocalWithoutACluster) {
  EXPECT_EQ(Run({"local", "status", "--dir", "nowhere"}), 3);
  EXPECT_THAT(err_.str(),
              HasSubstr("lockstep local up --dir " + dir_ + "/nowhere"));
  EXPECT_EQ(Run({"local", "down", "--dir", "nowhere"}), 0);
}

TEST_F(CliTest, DestructionIsAskedForOrRefused) {
  Cli cli;
  cli.env = &env_;
  EXPECT_EQ(cli.Confirm("Remove it", false).status().code(),
            StatusCode::kInvalidArgument);
  EXPECT_TRUE(*cli.Confirm("Remove it", true));
  env_.in_is_tty = env_.err_is_tty = true;
  in_.str("y\n\n");
  EXPECT_TRUE(*cli.Confirm("Remove it", false));
  EXPECT_FALSE(*cli.Confirm("Remove it", false));
}

TEST_F(CliTest, OtherNamesAreProgramsBesideIt) {
  const std::string program = dir_ + "/lockstep-hello";
  ASSERT_TRUE(RealFileSystem()
                  ->WriteAtomic(program,
                                "#!/bin/sh\ntest \"$1 $2\" = "
                                "'-x y' && exit 42\n")
                  .ok());
  chmod(program.c_str(), 0755);
  server_.reset();  // Its threads may hold the allocator's locks.
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) _exit(RunCli({"hello", "-x", "y"}, &env_));
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(WEXITSTATUS(status), 42);
  EXPECT_EQ(Run({"../hello"}), 2);
}

}  // namespace
}  // namespace lockstep::cli
