#include "worker/shim/exit_recorder.h"

#include <errno.h>

#include "worker/shim/io.h"

namespace lockstep::worker::shim {
namespace {

// How often a record that cannot be written is tried again, and for how long.
constexpr int64_t kRecordAgain = kNanosPerSecond;
constexpr int64_t kRecordTime = 3600 * kNanosPerSecond;

}  // namespace

void ExitRecorder::Begin(int64_t now) { give_up_at_ = now + kRecordTime; }

void ExitRecorder::Write(const task::ExitRecord& record, int64_t now,
                         bool has_reader) {
  if (WriteRecord(path_, task::EncodeExitRecord(record))) {
    durable_ = true;
    return;
  }
  const int error = errno;
  if (next_try_ == 0) {
    Complain(ErrorText("writing the exit record " + path_, error));
  }
  next_try_ = now + kRecordAgain;
  // No process reads a directory that is gone.
  given_up_ = (error == ENOENT && !has_reader) || now >= give_up_at_;
}

}  // namespace lockstep::worker::shim
