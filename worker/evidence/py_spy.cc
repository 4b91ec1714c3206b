#include "worker/evidence/py_spy.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "worker/evidence/text.h"

namespace lockstep::worker::evidence {
namespace {

using Json = nlohmann::json;

std::string TextOf(const Json& object, const char* key) {
  const auto it = object.find(key);
  if (it == object.end() || !it->is_string()) return "";
  return ShortText(it->get_ref<const std::string&>(), kMaxEvidenceName);
}

bool BoolOf(const Json& object, const char* key) {
  const auto it = object.find(key);
  return it != object.end() && it->is_boolean() && it->get<bool>();
}

int64_t NumberOf(const Json& object, const char* key, int64_t most) {
  const auto it = object.find(key);
  if (it == object.end() || !it->is_number_integer()) return 0;
  // An unsigned number beyond int64_t would become negative.
  const int64_t value = it->get<int64_t>();
  return value < 0 || value > most ? 0 : value;
}

StackFrame FrameOf(const Json& object) {
  StackFrame frame;
  frame.function = TextOf(object, "name");
  const auto path = object.find("filename");
  if (path != object.end() && path->is_string()) {
    const auto& text = path->get_ref<const std::string&>();
    PythonModule module = ModuleOfFile(text);
    frame.module = ShortText(module.name, kMaxEvidenceName);
    frame.library = module.library;
    frame.file = ShortText(BaseName(text), kMaxEvidenceName);
  }
  frame.line = static_cast<int32_t>(NumberOf(object, "line", INT32_MAX));
  return frame;
}

ThreadEvidence ThreadOf(const Json& object) {
  ThreadEvidence thread;
  thread.id = NumberOf(object, "os_thread_id", INT32_MAX);
  thread.name = TextOf(object, "thread_name");
  thread.holds_gil = BoolOf(object, "owns_gil");
  const int64_t pid = NumberOf(object, "pid", INT32_MAX);
  // In a container its number may be another one there.
  thread.main = (pid != 0 && thread.id == pid) || thread.name == "MainThread";
  const auto frames = object.find("frames");
  if (frames == object.end() || !frames->is_array()) return thread;
  for (const Json& frame : *frames) {
    if (thread.frames.size() == kMaxEvidenceFrames) break;
    if (frame.is_object()) thread.frames.push_back(FrameOf(frame));
  }
  return thread;
}

// What is behind the last `mark`, or nothing.
std::string_view Behind(std::string_view path, std::string_view mark) {
  const size_t at = path.rfind(mark);
  return at == path.npos ? std::string_view() : path.substr(at + mark.size());
}

// Behind ".../lib/python3.11/".
std::string_view BehindStandardLibrary(std::string_view path) {
  std::string_view rest = Behind(path, "/lib/python");
  const size_t slash = rest.find('/');
  if (rest.empty() || slash == rest.npos || rest[0] < '0' || rest[0] > '9') {
    return {};
  }
  return rest.substr(slash + 1);
}

}  // namespace

PythonModule ModuleOfFile(std::string_view path) {
  PythonModule module;
  // "<frozen importlib._bootstrap>", "<string>".
  if (path.starts_with('<')) {
    module.name = path;
    module.library = path.starts_with("<frozen");
    return module;
  }
  std::string_view rest = Behind(path, "/site-packages/");
  if (rest.empty()) rest = Behind(path, "/dist-packages/");
  if (rest.empty()) rest = BehindStandardLibrary(path);
  module.library = !rest.empty();
  if (rest.empty()) rest = BaseName(path);
  if (rest.ends_with(".py")) rest.remove_suffix(3);
  if (module.library && rest.ends_with("/__init__")) rest.remove_suffix(9);
  module.name = rest;
  std::replace(module.name.begin(), module.name.end(), '/', '.');
  return module;
}

bool IsPythonName(std::string_view path) {
  const std::string_view name = BaseName(path);
  return name.starts_with("python") || name.starts_with("pypy");
}

StatusOr<std::vector<ThreadEvidence>> ParsePySpy(std::string_view json) {
  // No exceptions; a depth as deep as its own output.
  const Json top = Json::parse(
      json.begin(), json.end(),
      [](int depth, Json::parse_event_t, const Json&) { return depth < 8; },
      /*allow_exceptions=*/false);
  if (!top.is_array()) {
    return DataLoss("the answer of py-spy is not a list of threads");
  }
  std::vector<ThreadEvidence> threads;
  for (const Json& thread : top) {
    if (thread.is_object()) threads.push_back(ThreadOf(thread));
  }
  if (threads.empty()) return DataLoss("py-spy found no thread");
  std::stable_partition(threads.begin(), threads.end(),
                        [](const ThreadEvidence& t) { return t.main; });
  if (threads.size() > kMaxEvidenceThreads) threads.resize(kMaxEvidenceThreads);
  return threads;
}

}  // namespace lockstep::worker::evidence
