// A cluster whose nodes run containers, and images for them: made here of
// busybox, taken away after the test, and containers that stay are a failure.
#ifndef LOCKSTEP_TESTS_CLUSTER_IMAGE_FIXTURE_H_
#define LOCKSTEP_TESTS_CLUSTER_IMAGE_FIXTURE_H_

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/stat.h>

#include <string>
#include <vector>

#include "common/base/random.h"
#include "tests/cluster/fixture.h"

namespace lockstep {

class ImageClusterTest : public ClusterTest {
 protected:
  // The program of the nodes' engine; "" where none works.
  std::string Engine() {
    const auto node = client()->GetNode("worker-0");
    EXPECT_TRUE(node.ok()) << node.status();
    if (!node.ok()) return "";
    // "podman 4.3.1".
    const std::string& engine = node->container_engine();
    return engine.substr(0, engine.find(' '));
  }

  // Makes `image`, or moves its tag: in it `script` is the program `name`.
  // `entrypoint` and `cmd` are lists as a Dockerfile has them. Returns its id,
  // "sha256:...".
  std::string MakeImage(const std::string& image, const std::string& name,
                        const std::string& script,
                        const std::string& entrypoint,
                        const std::string& cmd = "[]") {
    const std::string engine = Engine();
    const std::string root = Path("image-" + RandomHex(4));
    EXPECT_TRUE(RealFileSystem()->MakeDirs(root + "/bin").ok());
    EXPECT_TRUE(RealFileSystem()->MakeDirs(root + "/tmp").ok());
    WriteFile(root + "/bin/" + name, "#!/bin/sh\n" + script);
    EXPECT_EQ(chmod((root + "/bin/" + name).c_str(), 0755), 0);
    const std::string tar = root + ".tar";
    const std::vector<std::vector<std::string>> steps = {
        {"cp", "/bin/busybox", root + "/bin/busybox"},
        {"ln", "-s", "busybox", root + "/bin/sh"},
        {"tar", "-C", root, "-cf", tar, "."},
        {engine, "import", "--change", "ENTRYPOINT " + entrypoint, "--change",
         "CMD " + cmd, "--change", "ENV PATH=/bin", tar, image}};
    for (const std::vector<std::string>& step : steps) {
      const CommandResult result = RunCommand(step);
      EXPECT_EQ(result.code, 0) << step[0] << ": " << result.err;
    }
    const CommandResult inspected =
        RunCommand({engine, "image", "inspect", "--format", "{{.Id}}", image});
    std::string id = inspected.out.substr(0, inspected.out.find('\n'));
    // Podman leaves the algorithm out.
    if (!id.starts_with("sha256:")) id.insert(0, "sha256:");
    made_.push_back({engine, image});
    made_.push_back({engine, id});
    return id;
  }

  // Of this cluster's nodes: "NAME STATE", running or not.
  std::vector<std::string> Containers(const std::string& engine) {
    std::vector<std::string> found;
    for (const char* worker : {"worker-0", "worker-1"}) {
      // The label: the file's text and, as directories are copied, its number.
      const std::string path = cluster()->layout().DaemonDir(worker) + "/mark";
      std::string mark = ReadFile(path);
      mark.erase(mark.find_last_not_of('\n') + 1);
      struct stat info {};
      EXPECT_EQ(stat(path.c_str(), &info), 0) << path;
      mark += fmt::format("-{:x}", info.st_ino);
      const CommandResult listed = RunCommand(
          {engine, "ps", "--all", "--filter", "label=lockstep.mark=" + mark,
           "--format", "{{.Names}} {{.State}}"});
      EXPECT_EQ(listed.code, 0) << listed.err;
      for (size_t begin = 0; begin < listed.out.size();) {
        const size_t end = listed.out.find('\n', begin);
        found.push_back(listed.out.substr(begin, end - begin));
        begin = end == std::string::npos ? listed.out.size() : end + 1;
      }
    }
    return found;
  }

  void TearDown() override {
    if (!made_.empty() && cluster() != nullptr) {
      const std::string engine = made_[0].engine;
      for (const v1::Job& job :
           client()->ListJobs().value_or(std::vector<v1::Job>())) {
        if (!cli::IsFinalState(job.state())) {
          EXPECT_TRUE(client()->CancelJob(job.name()).ok()) << job.name();
        }
      }
      EXPECT_TRUE(Eventually([&] { return Containers(engine).empty(); }))
          << fmt::format("{}", fmt::join(Containers(engine), "\n"));
    }
    for (const Made& made : made_) {
      (void)RunCommand({made.engine, "rmi", "--force", made.image});
    }
    ClusterTest::TearDown();
  }

 private:
  struct Made {
    std::string engine;
    std::string image;
  };
  std::vector<Made> made_;
};

}  // namespace lockstep

#endif  // LOCKSTEP_TESTS_CLUSTER_IMAGE_FIXTURE_H_
