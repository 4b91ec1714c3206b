// Stacks that py-spy printed, from the memory of a rank's process.
#include "worker/evidence/py_spy.h"

#include "tests/fuzz/fuzz.h"

LOCKSTEP_FUZZ_TARGET(py_spy)(const uint8_t* data, size_t size) {
  using namespace lockstep;
  const auto threads = worker::evidence::ParsePySpy(fuzz::View(data, size));
  if (!threads.ok()) return 0;
  fuzz::Require(!threads->empty() && threads->size() <= kMaxEvidenceThreads,
                "threads are bounded");
  for (const ThreadEvidence& thread : *threads) {
    fuzz::Require(thread.id >= 0 && thread.name.size() <= kMaxEvidenceName &&
                      thread.frames.size() <= kMaxEvidenceFrames,
                  "a thread is bounded");
    for (const StackFrame& frame : thread.frames) {
      fuzz::Require(frame.line >= 0 &&
                        frame.module.size() <= kMaxEvidenceName &&
                        frame.function.size() <= kMaxEvidenceName &&
                        frame.file.size() <= kMaxEvidenceName,
                    "a frame is bounded");
    }
  }
  return 0;
}
