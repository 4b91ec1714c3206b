// What lockstep-stacks prints, and how stacks join the threads of /proc: the
// pure parts of stacks.h.
#include <algorithm>
#include <charconv>
#include <utility>

#include "common/os/proc_text.h"
#include "worker/evidence/stacks.h"
#include "worker/evidence/text.h"

namespace lockstep::worker::evidence {
namespace {

constexpr std::string_view kThread = "thread ";
constexpr std::string_view kFrame = "frame ";

std::string_view TakeColumn(std::string_view* line) {
  const size_t end = std::min(line->find('\t'), line->size());
  const std::string_view column = line->substr(0, end);
  line->remove_prefix(std::min(end + 1, line->size()));
  return column;
}

template <typename T>
T Number(std::string_view word) {
  T value = 0;
  const auto [stop, error] =
      std::from_chars(word.data(), word.data() + word.size(), value);
  return error == std::errc() && value >= 0 ? value : T{};
}

// "c10d::Work::wait" of "c10d::Work::wait(std::chrono::duration<long> >)":
// without arguments, which fill a screen and tell nothing about a hang. A name
// of C has none.
std::string_view WithoutArguments(std::string_view function) {
  if (function.find("::") == function.npos ||
      function.find("operator") != function.npos) {
    return function;
  }
  // "(anonymous namespace)" is a part of the name.
  int depth = 0;
  for (size_t i = 0; i < function.size(); ++i) {
    if (function[i] == '<') ++depth;
    if (function[i] == '>') --depth;
    if (function[i] == '(' && depth == 0 &&
        !function.substr(i).starts_with("(anonymous")) {
      return function.substr(0, i);
    }
  }
  return function;
}

StackFrame NativeFrame(std::string_view line) {
  StackFrame frame;
  frame.module = ShortText(TakeColumn(&line), kMaxEvidenceName);
  frame.function =
      ShortText(WithoutArguments(TakeColumn(&line)), kMaxEvidenceName);
  frame.file = ShortText(TakeColumn(&line), kMaxEvidenceName);
  frame.line = Number<int32_t>(TakeColumn(&line));
  frame.library = line == "library";
  return frame;
}

}  // namespace

StatusOr<std::vector<ThreadEvidence>> ParseNativeStacks(std::string_view text) {
  std::vector<ThreadEvidence> threads;
  while (!text.empty()) {
    std::string_view line = TakeLine(&text);
    if (line.starts_with(kThread)) {
      if (threads.size() == kMaxEvidenceThreads) break;
      line.remove_prefix(kThread.size());
      threads.emplace_back().id = Number<int64_t>(line);
    } else if (line.starts_with(kFrame) && !threads.empty()) {
      line.remove_prefix(kFrame.size());
      auto& frames = threads.back().frames;
      if (frames.size() < kMaxEvidenceFrames) {
        frames.push_back(NativeFrame(line));
      }
    } else {
      return DataLoss("lockstep-stacks printed another line");
    }
  }
  if (threads.empty()) return DataLoss("lockstep-stacks found no thread");
  return threads;
}

void MergeStacks(std::vector<ThreadEvidence> stacks, ProcessEvidence* process) {
  auto& threads = process->threads;
  for (ThreadEvidence& stack : stacks) {
    const auto same =
        std::find_if(threads.begin(), threads.end(),
                     [&](const auto& t) { return t.id == stack.id; });
    if (same == threads.end()) {
      if (threads.size() < kMaxEvidenceThreads) {
        threads.push_back(std::move(stack));
      }
      continue;
    }
    // Python's name of a thread says more than the kernel's.
    if (!stack.name.empty()) same->name = std::move(stack.name);
    same->holds_gil = stack.holds_gil;
    same->main = same->main || stack.main;
    same->frames = std::move(stack.frames);
  }
}

}  // namespace lockstep::worker::evidence
