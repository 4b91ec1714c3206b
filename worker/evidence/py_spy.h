// The stacks of a Python process as `py-spy dump --json` prints them.
//
// Its text comes from the memory of a rank's process, which a user wrote, so
// nothing in it is trusted: bounds are applied, and other fields are ignored.
// Pure; safe from any thread.
#ifndef LOCKSTEP_WORKER_EVIDENCE_PY_SPY_H_
#define LOCKSTEP_WORKER_EVIDENCE_PY_SPY_H_

#include <string>
#include <string_view>
#include <vector>

#include "common/base/status.h"
#include "common/model/evidence.h"

namespace lockstep::worker::evidence {

// Returns the threads, the main thread first. Only id, name, main, holds_gil
// and frames are set. DataLoss says what is wrong with `json`.
StatusOr<std::vector<ThreadEvidence>> ParsePySpy(std::string_view json);

// Module and `library` of a source file: "torch.nn.functional" and true of
// "/x/site-packages/torch/nn/functional.py", "train" and false of
// "/home/u/train.py". Of a package's __init__.py the package.
struct PythonModule {
  std::string name;
  bool library = false;
};
PythonModule ModuleOfFile(std::string_view path);

// Returns whether a program is a Python interpreter, by the path of its file or
// the name of its process: "python3.11", "python", "pypy3".
bool IsPythonName(std::string_view path);

}  // namespace lockstep::worker::evidence

#endif  // LOCKSTEP_WORKER_EVIDENCE_PY_SPY_H_
