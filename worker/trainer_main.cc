// lockstep-train: trains an image classifier, as one rank of a job or alone.
//
// Exits with 0 when the training is done or the coordinator stopped it, with 2
// for wrong usage and for data errors that a restart cannot fix, with 75 when a
// peer is lost, with 128 + signal after a signal, and with 1 for its own
// failures. Its last error goes to standard error and to the job.
#include <fmt/format.h>

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>

#include "common/base/fault_point.h"
#include "common/base/file.h"
#include "common/base/logging.h"
#include "common/base/status.h"
#include "worker/runtime/session.h"
#include "worker/trainer/environment.h"
#include "worker/trainer/options.h"
#include "worker/trainer/replica.h"
#include "worker/trainer/train_loop.h"

namespace lockstep::worker {
namespace {

using runtime::Session;
using runtime::SessionOptions;

constexpr int kExitUsage = 2;
constexpr int kExitTerminated = 128 + 15;

int Fail(const Status& status, int code) {
  fmt::print(stderr, "lockstep-train: {}\n", Message(status));
  return code;
}

void WarnOfSlowBlas(const Session& session) {
  if (!session.chief()) return;
  std::string maps;
  if (std::FILE* file = std::fopen("/proc/self/maps", "re")) {
    char block[4096];
    while (size_t size = std::fread(block, 1, sizeof(block), file)) {
      maps.append(block, size);
    }
    std::fclose(file);
  }
  if (auto warning = trainer::SlowBlasWarning(maps)) LOG_WARN("{}", *warning);
}

// Wrong usage. Where this is a rank of a job, its job learns the sentence too.
int FailUsage(const Status& status) {
  SessionOptions join;
  join.join_timeout = std::chrono::seconds(2);
  if (auto session = Session::Join(join); session.ok()) {
    (*session)->Leave(status);
  }
  return Fail(status, kExitUsage);
}

// Everything but the session, so that all is gone when Leave is called.
Status Train(Session* session, const trainer::TrainerOptions& options,
             bool* permanent) {
  trainer::TrainLoop loop(RealFileSystem(), session, options);
  const Status status = loop.Run();
  *permanent = loop.IsPermanent(status);
  // What of this step is under way must end before its buffers go, and no peer
  // should wait for it meanwhile.
  if (!status.ok() && session->communicator() != nullptr) {
    session->communicator()->Abort(Message(status));
  }
  return status;
}

int Main(int argc, char** argv) {
  trainer::KeepFreedMemory();
  trainer::PreferWideBlas(argv);
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  InitLogging("train", "info");
  StatusOr<std::optional<trainer::TrainerOptions>> options =
      trainer::ParseFlags(argc, argv);
  if (!options.ok()) return FailUsage(options.status());
  if (!options->has_value()) return 0;
  if (!(*options)->faults.points.empty()) {
    const Status faults = EnableFaults((*options)->faults.points);
    if (!faults.ok()) return FailUsage(faults);
  }

  SessionOptions join;
  join.local_output_directory = (*options)->output.directory;
  join.local_checkpoint_interval = (*options)->output.checkpoint_interval;
  join.backend = (*options)->reduction.backend;
  join.recoverable = (*options)->run.recover || (*options)->run.elastic;
  join.elastic = (*options)->run.elastic;
  StatusOr<std::unique_ptr<Session>> session = Session::Join(join);
  if (!session.ok()) {
    return Fail(session.status(), Session::ExitCodeFor(session.status()));
  }
  const int threads = trainer::ChooseThreads((*options)->run.threads,
                                             std::getenv("OMP_NUM_THREADS"),
                                             (*session)->identity().cpus);
  trainer::ConfigureTorch(threads);
  trainer::SetBlasThreads(threads);
  WarnOfSlowBlas(**session);

  bool permanent = false;
  const Status status = Train(session->get(), **options, &permanent);
  const int code = (*session)->Leave(status);
  // Leave may fail although the training did not: its last checkpoint is lost.
  if (status.ok()) return code;
  if (permanent) return Fail(status, kExitUsage);
  return Fail(status, ReasonOf(status) == trainer::kReasonStopped
                          ? kExitTerminated
                          : code);
}

}  // namespace
}  // namespace lockstep::worker

int main(int argc, char** argv) { return lockstep::worker::Main(argc, argv); }
