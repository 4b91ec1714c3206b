// Acts as lockstep-coordinator or lockstep-worker, depending on its name, for
// the tests of client/local: writes endpoint.json and runs until SIGTERM. The
// coordinator serves FakeCoordinator's answers: eight READY nodes, one job.
//
// Its own flags: --fail TEXT prints TEXT and exits with 1; --deaf ignores
// SIGTERM; --silent writes no endpoint.
#include <signal.h>
#include <stdio.h>
#include <unistd.h>

#include <map>
#include <string>

#include "client/lib/fake_coordinator.h"
#include "common/base/file.h"

namespace lockstep::cli {
namespace {

int Run(int argc, char** argv) {
  std::map<std::string, std::string> flags;
  for (int i = 1; i < argc; ++i) {
    const std::string flag = argv[i];
    const bool valued = i + 1 < argc && argv[i + 1][0] != '-';
    flags[flag] = valued ? argv[++i] : "";
  }
  if (flags.count("--fail")) {
    fprintf(stderr, "starting\n%s\n", flags["--fail"].c_str());
    return 1;
  }
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigprocmask(SIG_BLOCK, &signals, nullptr);
  const std::string dir = flags["--dir"];
  std::unique_ptr<FakeCoordinator> server;
  if (flags.count("--listen")) {
    auto started = FakeCoordinator::Start(flags["--listen"]);
    if (!started.ok()) {
      fprintf(stderr, "%s\n", Message(started.status()).c_str());
      return 1;
    }
    server = *std::move(started);
    server->Update([&](FakeAnswers* answers) {
      for (int i = 0; i < 8; ++i) {
        v1::Node& node = answers->nodes.emplace_back();
        node.set_name("worker-" + std::to_string(i));
        node.set_state(v1::NODE_STATE_READY);
      }
      v1::Job& job = answers->jobs.emplace_back();
      job.set_name("forgotten");
      job.set_state(v1::JOB_STATE_RUNNING);
    });
  }
  if (!flags.count("--silent")) {
    const Status written = RealFileSystem()->WriteAtomic(
        dir + "/endpoint.json",
        "{\"pid\": " + std::to_string(getpid()) + "}\n");
    if (!written.ok()) return 1;
  }
  printf("serving\n");
  fflush(stdout);
  int signal = 0;
  do {
    sigwait(&signals, &signal);
  } while (flags.count("--deaf"));
  return 0;
}

}  // namespace
}  // namespace lockstep::cli

int main(int argc, char** argv) { return lockstep::cli::Run(argc, argv); }
