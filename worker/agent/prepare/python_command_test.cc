#include "worker/agent/prepare/python_command.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lockstep::worker::agent {
namespace {

using testing::ElementsAre;

TEST(PythonCommandTest, ModulesAndScriptsAreFoundBehindOptions) {
  EXPECT_EQ(ModuleOf({"python3", "-m", "trainer.task", "--steps", "3"}),
            "trainer.task");
  EXPECT_EQ(ModuleOf({"/opt/v/bin/python3.11", "-u", "-X", "dev", "-m", "a"}),
            "a");
  EXPECT_EQ(ModuleOf({"python3", "train.py", "-m", "x"}), "");
  EXPECT_EQ(ModuleOf({"python3", "-c", "pass", "-m"}), "");
  EXPECT_EQ(ModuleOf({"python3", "-m"}), "");
  EXPECT_EQ(ModuleOf({"pythonic", "-m", "a"}), "");
  EXPECT_EQ(ModuleOf({}), "");
  EXPECT_EQ(ScriptOf({"python", "-u", "train.py", "other.py"}), "train.py");
  EXPECT_EQ(ScriptOf({"python", "-m", "train.py"}), "");
  EXPECT_EQ(ScriptOf({"sh", "train.py"}), "");
}

TEST(PythonCommandTest, TheRuntimesInterpreterTakesThePlaceOfPython) {
  GangSpec spec;
  LocalTask task;
  task.argv = {"python3", "-m", "a"};
  spec.tasks = {task};
  EXPECT_THAT(CommandOf(spec, task), ElementsAre("python3", "-m", "a"));
  EXPECT_EQ(InterpreterOf(spec), "python3");
  spec.runtime.python = "/opt/tf/bin/python3";
  EXPECT_THAT(CommandOf(spec, task),
              ElementsAre("/opt/tf/bin/python3", "-m", "a"));
  EXPECT_EQ(InterpreterOf(spec), "/opt/tf/bin/python3");
  task.argv[0] = "/usr/bin/python3";
  EXPECT_EQ(CommandOf(spec, task)[0], "/usr/bin/python3");
  task.argv = {"python3"};
  task.container = Container{"image", {}};
  EXPECT_EQ(CommandOf(spec, task)[0], "python3");
}

TEST(PythonCommandTest, PackagesComeBeforeTheJobsOwnPath) {
  std::map<std::string, std::string> environment = {{"PYTHONPATH", "/own"}};
  PutPythonPath({"/a", "/b"}, &environment);
  EXPECT_EQ(environment["PYTHONPATH"], "/a:/b:/own");
  environment.clear();
  PutPythonPath({}, &environment);
  EXPECT_TRUE(environment.empty());
  PutPythonPath({"/a"}, &environment);
  EXPECT_EQ(environment["PYTHONPATH"], "/a");
  EXPECT_THAT(SplitPath("/a::/b:"), ElementsAre("/a", "/b"));
}

}  // namespace
}  // namespace lockstep::worker::agent
