// Reads the stacks of a process by a program that is a child of the caller:
// py-spy for Python, lockstep-stacks for others. A child that takes too long is
// killed; the process itself gets no signal.
//
// Blocks. Safe from any thread.
#ifndef LOCKSTEP_WORKER_EVIDENCE_STACKS_H_
#define LOCKSTEP_WORKER_EVIDENCE_STACKS_H_

#include <string>
#include <string_view>
#include <vector>

#include "common/base/clock.h"
#include "common/base/status.h"
#include "common/model/evidence.h"
#include "worker/evidence/rank_processes.h"

namespace lockstep::worker::evidence {

struct StackTools {
  // A path; "auto": py-spy of the caller's PATH, or next to the interpreter of
  // the process if that runs as the caller's user; "none".
  std::string py_spy = "auto";
  // The path of lockstep-stacks; empty: none.
  std::string native;
  // The caller's, for the children.
  std::string path;
};

// `py_spy` as in StackTools. lockstep-stacks is in the folder of the shim's
// program.
StackTools FindStackTools(const std::string& py_spy, const std::string& shim,
                          const std::string& path);

// The py-spy that may read a process of this place; empty: there is none. One
// that came with the job's program is the user's code: it is taken only with
// that user's rights.
std::string PySpyOf(const StackTools& tools, const ProcessPlace& place);

// Sets stack_source and the frames of the threads of `process`, or stack_error.
// Ends by `deadline`, except for a second that a child may take to die.
void ReadStacks(const StackTools& tools, MonoTime deadline,
                ProcessEvidence* process);

// What lockstep-stacks prints, line by line:
//   thread ID
//   frame MODULE<tab>FUNCTION<tab>FILE<tab>LINE<tab>library|program
// Names come from files of a user, so nothing is trusted. Pure. DataLoss says
// what is wrong.
StatusOr<std::vector<ThreadEvidence>> ParseNativeStacks(std::string_view text);

// Puts frames, names and marks of `stacks` into the threads of the same ids;
// threads that are not there yet are added. Pure.
void MergeStacks(std::vector<ThreadEvidence> stacks, ProcessEvidence* process);

// Puts the frames that are in a library of PyTorch or JAX, of `native` as
// ParseNativeStacks returned it, before those of the Python threads of
// `process`, and adds the library's own threads. Pure.
void MergeFramework(std::vector<ThreadEvidence> native,
                    ProcessEvidence* process);

// Why ptrace(2) may be refused here: the settings of this machine, in a
// sentence.
std::string WhyRefused();

}  // namespace lockstep::worker::evidence

#endif  // LOCKSTEP_WORKER_EVIDENCE_STACKS_H_
