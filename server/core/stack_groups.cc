#include "server/core/stack_groups.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <iterator>
#include <map>
#include <string_view>
#include <utility>

namespace lockstep::server {
namespace {

// Names of operations that wait for other ranks, of PyTorch, TensorFlow, JAX,
// Horovod, MPI, NCCL, Gloo and lockstep, in lower case and without "_".
constexpr std::string_view kCollectives[] = {
    "allreduce",
    "allreducecoalesced",
    "allgather",
    "allgatherbase",
    "allgatherintotensor",
    "allgatherobject",
    "reducescatter",
    "reducescattertensor",
    "alltoall",
    "alltoallsingle",
    "broadcast",
    "broadcastobjectlist",
    "barrier",
    "monitoredbarrier",
    "syncglobaldevices",
    "processallgather",
    "waitallreduce",
    "ncclallreduce",
    "mpiallreduce",
    "mpibarrier",
    "mpiallgather",
    "collectiveallreduce",
    "psum",
    // Of two ranks; their waiting has the same meaning.
    "recv",
    "irecv",
    "send",
    "isend",
    "recvtensor",
    "sendtensor",
};
// Their functions of the same names do not wait for other ranks.
constexpr std::string_view kNotCollective[] = {
    "threading",      "asyncio",          "multiprocessing", "numpy",
    "jax._src.numpy", "torch.functional", "concurrent"};
// How Python's interpreter and pybind11 call a function of C or C++.
constexpr std::string_view kCallGlue[] = {
    "_Py",      "Py",          "cfunction_", "method_", "vectorcall",
    "builtin_", "object_vaca", "slot_",      "type_",   "pybind11::"};
constexpr std::string_view kEvaluation = "_PyEval_EvalFrame";
// What the line "import torch" calls, in importlib.
constexpr std::string_view kImport = "_find_and_load";
// Ranks that were left by a peer wait for one.
constexpr char kRecovery[] = "a recovery";
// A launcher that waits for the program proper.
constexpr std::string_view kLaunchers[] = {
    "sh", "bash", "dash", "env", "timeout", "tini", "nice", "numactl", "srun"};

template <size_t N>
bool OneOf(std::string_view text, const std::string_view (&list)[N]) {
  return std::find(std::begin(list), std::end(list), text) != std::end(list);
}

// "ProcessGroupGloo::allreduce(std::vector<...>)" -> "allreduce".
std::string_view LastName(std::string_view function) {
  function = function.substr(0, function.find('('));
  const size_t mark = function.find_last_of(".:>");
  return mark == function.npos ? function : function.substr(mark + 1);
}

std::string Plain(std::string_view name) {
  std::string plain;
  for (const char c : name) {
    if (c != '_') {
      plain += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    }
  }
  return plain;
}

// What lockstep's own functions wait for: those of its library, and those of
// its Python package, which names them _group.wait where it is not installed.
std::string LockstepWait(const StackFrame& frame, std::string_view name) {
  if (name == "lockstep_work_wait") return "lockstep's collective";
  if (name == "lockstep_session_await_recovery") return kRecovery;
  const auto is_in = [&](std::string_view file) {
    return frame.module == file ||
           frame.module == fmt::format("lockstep.{}", file);
  };
  if (is_in("_group") && (name == "wait" || name == "level")) {
    return "lockstep's collective";
  }
  if (!is_in("_recovery")) return "";
  if (name == "_leave") return kRecovery;
  return name == "_form" ? "the forming of a group" : "";
}

std::string CollectiveOf(const StackFrame& frame) {
  for (const std::string_view module : kNotCollective) {
    if (frame.module.starts_with(module)) return "";
  }
  const std::string_view name = LastName(frame.function);
  // DistributedDataParallel's, behind the last gradient of a backward pass.
  if (frame.function.starts_with("c10d::Reducer::finalize_backward")) {
    return "DistributedDataParallel's all_reduce";
  }
  // c10d::Work::wait, c10d::TCPStore::wait: for what other ranks send.
  if (frame.function.starts_with("c10d::") && name == "wait") {
    return frame.function.substr(0, frame.function.find('('));
  }
  if (std::string wait = LockstepWait(frame, name); !wait.empty()) return wait;
  return OneOf(Plain(name), kCollectives) ? std::string(name) : std::string();
}

// The outermost, which is what the program called.
std::string CollectiveOf(const std::vector<StackFrame>& frames) {
  for (auto frame = frames.rbegin(); frame != frames.rend(); ++frame) {
    if (std::string name = CollectiveOf(*frame); !name.empty()) return name;
  }
  return "";
}

const ThreadEvidence* MainThread(const ProcessEvidence& process) {
  const auto main =
      std::find_if(process.threads.begin(), process.threads.end(),
                   [](const ThreadEvidence& thread) { return thread.main; });
  if (main != process.threads.end()) return &*main;
  return process.threads.empty() ? nullptr : &process.threads.front();
}

bool IsAlive(const ProcessEvidence& process) {
  return process.state != "Z" && process.state != "X";
}

// The process that stands for the rank: the first Python process whose stack is
// known, else the first that is not a launcher.
const ProcessEvidence* ProcessOf(const RankEvidence& evidence) {
  const ProcessEvidence* first = nullptr;
  for (const ProcessEvidence& process : evidence.processes) {
    if (!IsAlive(process) || process.command == "lockstep-shim") continue;
    if (process.stack_source == kPySpySource) return &process;
    const bool better =
        first == nullptr || (OneOf(first->command, kLaunchers) &&
                             !OneOf(process.command, kLaunchers));
    if (better) first = &process;
  }
  return first;
}

bool IsSharedLibrary(const StackFrame& frame) {
  return frame.library && frame.module.find(".so") != frame.module.npos;
}

// Of a framework that runs operations on threads of its own: what one of them
// waits in, while the main thread waits in the framework for its result. A
// main thread that waits or runs elsewhere may have operations under way, too,
// and is not waiting for them.
std::string CollectiveOfFramework(const ProcessEvidence& process,
                                  const ThreadEvidence& main) {
  const std::string& state = main.state.empty() ? process.state : main.state;
  if (process.stack_source != kPySpySource || state != "S" ||
      main.frames.empty() || !IsSharedLibrary(main.frames.front())) {
    return "";
  }
  for (const ThreadEvidence& thread : process.threads) {
    if (&thread == &main || thread.frames.empty() ||
        !IsSharedLibrary(thread.frames.front())) {
      continue;
    }
    if (std::string name = CollectiveOf(thread.frames); !name.empty()) {
      return name;
    }
  }
  return "";
}

RankActivity ActivityOf(const ProcessEvidence& process,
                        const ThreadEvidence& thread, bool collective) {
  const std::string& state =
      thread.state.empty() ? process.state : thread.state;
  if (state == "T" || state == "t") return RankActivity::kStopped;
  if (state == "D") return RankActivity::kStuckInKernel;
  if (thread.frames.empty()) return RankActivity::kUnknown;
  if (collective) return RankActivity::kInCollective;
  return state == "R" ? RankActivity::kRuns : RankActivity::kWaits;
}

// The function of C or C++ that a Python program called last, where the stack
// has the interpreter's functions instead of the program's. Null: the
// interpreter itself runs. `end` is the innermost frame that evaluates Python.
const StackFrame* CalledFromPython(
    const std::vector<StackFrame>& frames,
    std::vector<StackFrame>::const_iterator end) {
  const auto is_glue = [](const StackFrame& frame) {
    return frame.function == "?" ||
           std::any_of(std::begin(kCallGlue), std::end(kCallGlue),
                       [&](std::string_view prefix) {
                         return frame.function.starts_with(prefix);
                       });
  };
  const auto outermost = std::make_reverse_iterator(end);
  const auto called = std::find_if_not(outermost, frames.rend(), is_glue);
  return called == frames.rend() ? nullptr : &*called;
}

// What the program called, and its line: the innermost frame of the program
// itself, and the frame that it called. A collective (or "") may be wrapped by
// others.
void AddPlace(const std::string& collective, RankPosition* position) {
  const auto& frames = position->frames;
  if (frames.empty()) return;
  const auto python =
      std::find_if(frames.begin(), frames.end(), [](const StackFrame& frame) {
        return frame.function.starts_with(kEvaluation);
      });
  if (python != frames.end()) {
    const StackFrame* const called = CalledFromPython(frames, python);
    position->function =
        called == nullptr ? "Python's interpreter" : called->function;
  } else {
    const auto own =
        std::find_if(frames.begin(), frames.end(),
                     [](const StackFrame& frame) { return !frame.library; });
    const auto place = own == frames.end() ? frames.begin() : own;
    const auto called = place == frames.begin() ? place : place - 1;
    position->function = called->function == kImport ? std::string("an import")
                                                     : called->function;
    if (!place->file.empty()) {
      position->place = place->line > 0
                            ? fmt::format("{}:{}", place->file, place->line)
                            : place->file;
    }
  }
  if (!collective.empty()) position->function = collective;
}

// Loops and recursion make stacks of different depths of the same function.
std::string KeyOf(const RankPosition& position) {
  std::string key = fmt::format("{}", static_cast<int>(position.activity));
  const StackFrame* before = nullptr;
  for (const StackFrame& frame : position.frames) {
    const bool again = before != nullptr && before->module == frame.module &&
                       before->function == frame.function;
    before = &frame;
    if (!again) key += fmt::format("\n{}:{}", frame.module, frame.function);
  }
  if (position.activity == RankActivity::kStuckInKernel) {
    key += "\n" + position.kernel;
  }
  if (!position.ended.empty()) key += "\n" + position.ended;
  if (!position.system_call.empty()) key += "\n" + position.system_call;
  return key;
}

}  // namespace

RankPosition PositionOf(const RankEvidence& evidence) {
  RankPosition position;
  const ProcessEvidence* const process = ProcessOf(evidence);
  const ThreadEvidence* const thread =
      process == nullptr ? nullptr : MainThread(*process);
  if (thread == nullptr) {
    position.activity = RankActivity::kGone;
    position.ended = evidence.ended;
    position.key = KeyOf(position);
    return position;
  }
  position.frames = thread->frames;
  std::string collective = CollectiveOf(position.frames);
  if (collective.empty()) collective = CollectiveOfFramework(*process, *thread);
  position.activity = ActivityOf(*process, *thread, !collective.empty());
  if (position.activity == RankActivity::kInCollective) {
    position.collective = collective;
  }
  if (position.activity == RankActivity::kStuckInKernel) {
    position.kernel = thread->wait_channel;
  }
  if (position.activity == RankActivity::kUnknown &&
      process->stack_source.empty() && process->stack_error.empty()) {
    position.system_call = thread->state == "R" ? "-" : thread->system_call;
  }
  AddPlace(collective, &position);
  position.key = KeyOf(position);
  return position;
}

std::string Describe(const RankPosition& position) {
  std::string where;
  if (!position.function.empty()) {
    where = " in " + position.function;
    if (!position.place.empty()) where += " (" + position.place + ")";
  }
  switch (position.activity) {
    case RankActivity::kGone:
      return position.ended.empty() ? std::string("has no process")
                                    : "has ended (" + position.ended + ")";
    case RankActivity::kStopped:
      return "is stopped by a signal or a debugger" + where;
    case RankActivity::kStuckInKernel:
      return fmt::format(
          "is stuck in the kernel{}{}",
          position.kernel.empty() ? std::string() : ", in " + position.kernel,
          where.empty() ? std::string() : "," + where);
    case RankActivity::kInCollective:
    case RankActivity::kWaits:
      return "waits" + where;
    case RankActivity::kRuns:
      return "runs" + where;
    case RankActivity::kUnknown:
      if (position.system_call == "-") return "runs";
      if (position.system_call.empty()) break;
      return "waits in the system call " + position.system_call;
  }
  return "does something that could not be read";
}

std::vector<StackGroup> GroupRanks(const std::vector<RankEvidence>& evidence) {
  std::map<std::string, StackGroup> by_key;
  for (const RankEvidence& rank : evidence) {
    RankPosition position = PositionOf(rank);
    StackGroup& group = by_key[position.key];
    if (group.ranks.empty()) group.position = std::move(position);
    group.ranks.push_back(rank.rank);
  }
  std::vector<StackGroup> groups;
  for (auto& [key, group] : by_key) {
    std::sort(group.ranks.begin(), group.ranks.end());
    groups.push_back(std::move(group));
  }
  std::sort(groups.begin(), groups.end(),
            [](const StackGroup& a, const StackGroup& b) {
              return a.ranks.size() != b.ranks.size()
                         ? a.ranks.size() > b.ranks.size()
                         : a.ranks < b.ranks;
            });
  const bool majority =
      !groups.empty() && 2 * groups.front().ranks.size() > evidence.size();
  for (size_t i = 1; majority && i < groups.size(); ++i) groups[i].odd = true;
  return groups;
}

}  // namespace lockstep::server
