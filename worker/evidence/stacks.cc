#include "worker/evidence/stacks.h"

#include <unistd.h>

#include <algorithm>
#include <utility>

#include "common/base/file.h"
#include "common/os/procfs.h"
#include "worker/container/command.h"
#include "worker/evidence/py_spy.h"
#include "worker/evidence/rank_processes.h"
#include "worker/evidence/text.h"

namespace lockstep::worker::evidence {
namespace {

// Of one child. py-spy takes 30 ms for a small program, lockstep-stacks 90 ms
// for one with PyTorch or JAX.
constexpr Duration kToolTime = std::chrono::seconds(2);
// Libraries of JAX and PyTorch, whose C++ runs collective operations: the
// program's Python functions ("backward") do not tell what they wait for.
constexpr std::string_view kFrameworkLibraries[] = {
    "libjax_common.so", "xla_extension.so", "libtorch_cpu.so",
    "libtorch_cuda.so", "libtorch_python.so"};

bool IsProgram(const std::string& path) {
  return access(path.c_str(), X_OK) == 0;
}

std::string Folder(const std::string& path) {
  const size_t slash = path.rfind('/');
  return slash == path.npos ? std::string() : path.substr(0, slash);
}

StatusOr<std::string> RunTool(std::vector<std::string> argv,
                              const StackTools& tools, MonoTime deadline) {
  container::Command command;
  command.argv = std::move(argv);
  // Nothing that makes libdw fetch files, or Rust print its own stack.
  command.env = {"PATH=" + tools.path, "LANG=C", "RUST_BACKTRACE=0"};
  // py-spy says what is wrong in the first line.
  std::string first;
  command.on_line = [&](const std::string& line) {
    if (first.empty()) first = line;
    return true;
  };
  LOCKSTEP_ASSIGN_OR_RETURN(
      container::CommandResult result,
      container::RunCommand(command,
                            std::min(deadline, MonotonicNow() + kToolTime)));
  if (!result.ok()) {
    if (first.starts_with("Error: ")) first.erase(0, 7);
    return Unavailable(
        "{}", ShortText(first.empty() ? "it failed without a word" : first,
                        kMaxEvidenceName));
  }
  return std::move(result.output);
}

StatusOr<std::vector<ThreadEvidence>> PythonStacks(const std::string& py_spy,
                                                   const StackTools& tools,
                                                   int64_t pid,
                                                   MonoTime deadline) {
  // --nonblocking: it stops no thread, and so also reads a stopped process.
  LOCKSTEP_ASSIGN_OR_RETURN(const std::string json,
                            RunTool({py_spy, "dump", "--nonblocking", "--json",
                                     "--pid", std::to_string(pid)},
                                    tools, deadline));
  return ParsePySpy(json);
}

StatusOr<std::vector<ThreadEvidence>> NativeStacks(const StackTools& tools,
                                                   int64_t pid,
                                                   MonoTime deadline) {
  LOCKSTEP_ASSIGN_OR_RETURN(
      const std::string text,
      RunTool({tools.native, std::to_string(pid)}, tools, deadline));
  return ParseNativeStacks(text);
}

bool IsFramework(std::string_view module) {
  return std::any_of(
      std::begin(kFrameworkLibraries), std::end(kFrameworkLibraries),
      [&](std::string_view name) { return module.find(name) != module.npos; });
}

// Adds what the framework of a Python process does.
void AddFramework(const StackTools& tools, MonoTime deadline,
                  ProcessEvidence* process) {
  if (process->state != "S") return;  // It runs, or is stopped.
  const auto maps = ReadProcFile(fmt::format("/proc/{}/maps", process->pid));
  if (tools.native.empty() || !maps.ok() || !IsFramework(*maps)) return;
  auto stacks = NativeStacks(tools, process->pid, deadline);
  // The Python stacks stand without it.
  if (stacks.ok()) MergeFramework(*std::move(stacks), process);
}

void Take(StatusOr<std::vector<ThreadEvidence>> stacks, const char* source,
          ProcessEvidence* process) {
  process->stack_source = source;
  process->stack_error.clear();
  MergeStacks(*std::move(stacks), process);
}

void AddError(const std::string& tool, const Status& status,
              ProcessEvidence* process) {
  std::string text = fmt::format("{}: {}", tool, Message(status));
  const bool refused = text.find("not permitted") != text.npos ||
                       text.find("ermission denied") != text.npos ||
                       status.code() == StatusCode::kPermissionDenied;
  if (refused) text += "; " + WhyRefused();
  if (!process->stack_error.empty()) process->stack_error += "; ";
  process->stack_error =
      ShortText(process->stack_error + text, kMaxEvidenceText);
}

}  // namespace

std::string PySpyOf(const StackTools& tools, const ProcessPlace& place) {
  if (tools.py_spy == "none") return "";
  if (tools.py_spy != "auto") return tools.py_spy;
  std::string_view rest = tools.path;
  while (!rest.empty()) {
    const size_t end = std::min(rest.find(':'), rest.size());
    const std::string path =
        JoinPath(std::string(rest.substr(0, end)), "py-spy");
    if (path.starts_with('/') && IsProgram(path)) return path;
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  if (place.uid != geteuid() || geteuid() == 0) return "";
  // A virtual environment's interpreter is a link, so its path leads elsewhere.
  for (const std::string* program : {&place.called, &place.program}) {
    const std::string path = JoinPath(Folder(*program), "py-spy");
    if (path.starts_with('/') && IsProgram(path)) return path;
  }
  return "";
}

StackTools FindStackTools(const std::string& py_spy, const std::string& shim,
                          const std::string& path) {
  StackTools tools;
  tools.py_spy = py_spy;
  tools.path = path;
  const std::string native = JoinPath(Folder(shim), "lockstep-stacks");
  if (IsProgram(native)) tools.native = native;
  return tools;
}

void MergeFramework(std::vector<ThreadEvidence> native,
                    ProcessEvidence* process) {
  std::vector<ThreadEvidence> others;
  for (ThreadEvidence& thread : native) {
    const auto python =
        std::find_if(process->threads.begin(), process->threads.end(),
                     [&](const ThreadEvidence& known) {
                       return known.id == thread.id && !known.frames.empty();
                     });
    // The interpreter's own functions say nothing.
    std::erase_if(thread.frames, [](const StackFrame& frame) {
      return !IsFramework(frame.module);
    });
    if (thread.frames.empty()) continue;
    if (python != process->threads.end()) {
      auto& frames = python->frames;
      frames.insert(frames.begin(), thread.frames.begin(), thread.frames.end());
      if (frames.size() > kMaxEvidenceFrames) frames.resize(kMaxEvidenceFrames);
      continue;
    }
    // Of threads that do the same, such as those of a pool, one is enough.
    const bool known = std::any_of(
        others.begin(), others.end(),
        [&](const auto& other) { return other.frames == thread.frames; });
    if (!known) others.push_back(std::move(thread));
  }
  MergeStacks(std::move(others), process);
}

std::string WhyRefused() {
  const auto text = ReadProcFile("/proc/sys/kernel/yama/ptrace_scope");
  const char scope = text.ok() && !text->empty() ? (*text)[0] : '0';
  switch (scope) {
    case '1':
      return "kernel.yama.ptrace_scope is 1: only processes that the rank "
             "itself starts may not be read; run the daemon as root, or set "
             "the value to 0";
    case '2':
      return "kernel.yama.ptrace_scope is 2: the daemon needs CAP_SYS_PTRACE";
    case '3':
      return "kernel.yama.ptrace_scope is 3: this machine allows no reading of "
             "stacks until it boots again";
    default:
      return "the process belongs to another user, or a security module or a "
             "seccomp filter denies ptrace(2)";
  }
}

void ReadStacks(const StackTools& tools, MonoTime deadline,
                ProcessEvidence* process) {
  const ProcessPlace place = PlaceOf(static_cast<pid_t>(process->pid));
  if (MonotonicNow() >= deadline) {
    process->stack_error = "the time was over before its turn";
    return;
  }
  if (IsPythonName(place.program) || IsPythonName(process->command)) {
    const std::string py_spy = PySpyOf(tools, place);
    if (py_spy.empty()) {
      process->stack_error =
          "py-spy is not installed here (pip install py-spy)";
    } else {
      auto stacks = PythonStacks(py_spy, tools, process->pid, deadline);
      if (stacks.ok()) {
        Take(std::move(stacks), kPySpySource, process);
        return AddFramework(tools, deadline, process);
      }
      AddError("py-spy", stacks.status(), process);
    }
  }
  if (tools.native.empty()) {
    if (process->stack_error.empty()) {
      process->stack_error = "this daemon has no lockstep-stacks";
    }
    return;
  }
  auto stacks = NativeStacks(tools, process->pid, deadline);
  if (!stacks.ok())
    return AddError("lockstep-stacks", stacks.status(), process);
  const std::string before = process->stack_error;
  Take(std::move(stacks), kNativeSource, process);
  // Without it, the functions are those of the interpreter.
  process->stack_error = before;
}

}  // namespace lockstep::worker::evidence
