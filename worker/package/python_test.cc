#include "worker/package/python.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/base/file.h"
#include "worker/package/package_test_util.h"
#include "worker/package/tool.h"

namespace lockstep::worker::package {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

class PythonTest : public testing::Test {
 protected:
  void SetUp() override {
    python_.program = "python3";
    python_.env = {"PATH=/usr/local/bin:/usr/bin:/bin"};
    if (const char* path = getenv("PATH")) {
      python_.env = {std::string("PATH=") + path};
    }
    python_.scratch = dir_ / "scratch";
    ASSERT_TRUE(RealFileSystem()->MakeDirs(python_.scratch).ok());
    if (!Run({"python3", "-c", "import pip"})) {
      GTEST_SKIP() << "there is no python3 with pip here";
    }
  }
  bool Run(std::vector<std::string> argv) {
    ToolOptions options;
    options.argv = std::move(argv);
    options.env = python_.env;
    const auto result = RunTool(options, &cancel_);
    return result.ok() && result->exit.ok();
  }
  void Write(const std::string& name, const std::string& text = "") {
    const std::string path = dir_ / name;
    ASSERT_TRUE(
        RealFileSystem()->MakeDirs(path.substr(0, path.rfind('/'))).ok());
    ASSERT_TRUE(RealFileSystem()->WriteAtomic(path, text).ok());
  }
  // A wheel of one module that requires `requirement`.
  std::string Wheel(const std::string& requirement) {
    const std::string path = dir_ / "ours_pkg-1.0-py3-none-any.whl";
    EXPECT_TRUE(
        Run({"python3", "-c",
             "import sys, zipfile\n"
             "z = zipfile.ZipFile(sys.argv[1], 'w')\n"
             "i = 'ours_pkg-1.0.dist-info/'\n"
             "z.writestr('ours_pkg/__init__.py', '')\n"
             "z.writestr('ours_pkg/task.py', 'print(1)')\n"
             "z.writestr(i + 'WHEEL', 'Wheel-Version: 1.0\\nGenerator: t\\n'\n"
             "           'Root-Is-Purelib: true\\nTag: py3-none-any\\n')\n"
             "z.writestr(i + 'METADATA', 'Metadata-Version: 2.1\\n'\n"
             "           'Name: ours-pkg\\nVersion: 1.0\\n' + sys.argv[2])\n"
             "z.writestr(i + 'RECORD', '')\n",
             path, requirement}));
    return path;
  }
  std::string Complaint(const Status& status) {
    EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition) << status;
    return Message(status);
  }

  TempDir dir_;
  Python python_;
  Cancellation cancel_;
};

TEST_F(PythonTest, AModuleIsFoundWithoutBeingImported) {
  Write("tree/trainer/__init__.py", "raise SystemExit('imported')");
  Write("tree/trainer/task.py", "raise SystemExit('imported')");
  Write("tree/app/__main__.py");
  const std::vector<std::string> path = {dir_ / "tree"};
  for (const char* module : {"trainer.task", "app", "json.tool", "timeit"}) {
    EXPECT_EQ(CheckModule(python_, module, path, &cancel_), OkStatus())
        << module;
  }
  EXPECT_EQ(Complaint(CheckModule(python_, "trainer.tsk", path, &cancel_)),
            "python3 -m trainer.tsk cannot run: there is no module "
            "trainer.tsk; near are trainer.task");
  EXPECT_THAT(Complaint(CheckModule(python_, "zzz.y", path, &cancel_)),
              HasSubstr("there is no module zzz for zzz.y; there are app, "
                        "trainer.task"));
  EXPECT_THAT(Complaint(CheckModule(python_, "trainer", path, &cancel_)),
              HasSubstr("trainer is a package without __main__.py"));
  EXPECT_THAT(Complaint(CheckModule(python_, "trainer.task.x", path, &cancel_)),
              HasSubstr("trainer.task is a module, so that there is no "
                        "trainer.task.x"));
}

TEST_F(PythonTest, AnInterpreterThatIsNotThereIsNamed) {
  python_.program = "/no/such/python3";
  EXPECT_THAT(Complaint(CheckModule(python_, "m", {}, &cancel_)),
              HasSubstr("cannot run the interpreter /no/such/python3: "));
}

TEST_F(PythonTest, AWheelIsInstalledAndItsRequirementsAreChecked) {
  const std::string site = dir_ / "site";
  ASSERT_EQ(
      InstallDistributions(python_,
                           {Wheel("Requires-Dist: pip>=1\n"
                                  "Requires-Dist: never; extra == 'none'\n")},
                           site, false, &cancel_),
      OkStatus());
  EXPECT_TRUE(RealFileSystem()->Exists(site + "/ours_pkg/task.py"));
  EXPECT_EQ(CheckRequirements(python_, site, {site}, &cancel_), OkStatus());
  EXPECT_EQ(CheckModule(python_, "ours_pkg.task", {site}, &cancel_),
            OkStatus());
}

TEST_F(PythonTest, UnmetRequirementsAreNamed) {
  const std::string site = dir_ / "site";
  ASSERT_EQ(InstallDistributions(
                python_,
                {Wheel("Requires-Dist: no-such-distribution-of-ours>=2\n"
                       "Requires-Dist: pip>=99999\n")},
                site, false, &cancel_),
            OkStatus());
  EXPECT_THAT(Complaint(CheckRequirements(python_, site, {site}, &cancel_)),
              AllOf(HasSubstr("python3 lacks requirements of the packages: "
                              "no-such-distribution-of-ours>=2, pip>=99999 ("),
                    HasSubstr("is there)")));
}

TEST_F(PythonTest, WhatPipRefusesIsSaidInItsWords) {
  Write("broken-1.0-py3-none-any.whl", "no zip");
  EXPECT_THAT(
      Complaint(InstallDistributions(python_,
                                     {dir_ / "broken-1.0-py3-none-any.whl"},
                                     dir_ / "site", false, &cancel_)),
      AllOf(HasSubstr(
                "installing broken-1.0-py3-none-any.whl with python3 failed: "),
            HasSubstr("invalid"), Not(HasSubstr("\n"))));
}

TEST_F(PythonTest, WhatAnSdistFailsWithIsSaid) {
  Write("broken-1.0.tar.gz",
        TarWriter()
            .File("broken-1.0/setup.py", "raise RuntimeError('it is not so')")
            .File("broken-1.0/PKG-INFO", "Name: broken\nVersion: 1.0\n")
            .Gzipped());
  EXPECT_THAT(
      Complaint(InstallDistributions(python_, {dir_ / "broken-1.0.tar.gz"},
                                     dir_ / "site", false, &cancel_)),
      HasSubstr("installing broken-1.0.tar.gz with python3 failed: "
                "RuntimeError: it is not so"));
}

TEST_F(PythonTest, AnSdistThatNeedsWheelSaysSo) {
  // As setuptools says it where there is none.
  Write("needs-1.0.tar.gz",
        TarWriter()
            .File("needs-1.0/setup.py",
                  "raise SystemExit(\"error: invalid command 'bdist_wheel'\")")
            .File("needs-1.0/PKG-INFO", "Name: needs\nVersion: 1.0\n")
            .Gzipped());
  EXPECT_THAT(
      Complaint(InstallDistributions(python_, {dir_ / "needs-1.0.tar.gz"},
                                     dir_ / "site", false, &cancel_)),
      HasSubstr("installing needs-1.0.tar.gz with python3 failed: building an "
                "sdist needs the module wheel: install it, for example "
                "python3-wheel, or submit a wheel"));
}

}  // namespace
}  // namespace lockstep::worker::package
