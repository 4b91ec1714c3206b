// For the tests of the shim: drives it as a worker daemon does, as a process.
#ifndef LOCKSTEP_WORKER_SHIM_SHIM_FIXTURE_H_
#define LOCKSTEP_WORKER_SHIM_SHIM_FIXTURE_H_

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "common/base/clock.h"
#include "common/base/log_line.h"
#include "common/os/process.h"
#include "worker/shim/shim_client.h"
#include "worker/task/exit_record.h"
#include "worker/task/shim_spec.h"

namespace lockstep::worker::shim {

// From now.
MonoTime In(Duration d);
// Whether `holds` came true within 15 s.
bool Eventually(const std::function<bool()>& holds);
// Waits until the shim has reported `phase` or a later one.
StatusOr<task::ShimReply> WaitForPhase(ShimClient* client,
                                       task::ShimReply::Phase phase,
                                       MonoTime deadline);
// A shell's exit code: the code, 128 + the signal, 127 for a missing program,
// 126 for one that cannot be executed.
int ExitCode(const task::ExitRecord& record);

struct ParsedLine {
  cri::LogStream stream;
  bool full;
  std::string text;
  int64_t unix_nanos;
};

class ShimTest : public testing::Test {
 protected:
  void SetUp() override;
  // Whatever shim is left is killed.
  void TearDown() override;

  std::string Path(const std::string& name) const;
  // Runs `script` by a shell with $DIR, the test's directory.
  task::ShimSpec Spec(const std::string& script) const;
  // The index of the new one in shims_.
  size_t Start(const task::ShimSpec& spec);
  // The shim's own exit code, -1 when it did not end.
  int ShimCode(size_t index = 0);
  // Runs `spec` to its end with no daemon there.
  task::ExitRecord RunToEnd(const task::ShimSpec& spec);
  std::unique_ptr<ShimClient> Connect();
  std::vector<ParsedLine> Log();
  std::vector<std::string> Texts();
  // The process whose number a script wrote to the file `name`.
  StatusOr<Process> ProcessIn(const std::string& name);

  std::string program_;
  std::string dir_;
  std::vector<Process> shims_;
};

}  // namespace lockstep::worker::shim

#endif  // LOCKSTEP_WORKER_SHIM_SHIM_FIXTURE_H_
