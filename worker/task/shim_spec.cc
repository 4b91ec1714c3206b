#include "worker/task/shim_spec.h"

#include "worker/task/bytes.h"
#include "worker/task/record_fields.h"

namespace lockstep::worker::task {
namespace {

constexpr std::string_view kSpecMagic = "LSSHSPEC";
constexpr uint32_t kSpecVersion = 3;
// Has the fence, too.
constexpr uint32_t kFencedSpecVersion = 4;
constexpr size_t kMaxSpecPath = 4095;
constexpr size_t kMaxStrings = 65536;

template <typename F, typename Spec>
void SpecFieldsOf(F& f, Spec& spec, bool fenced) {
  f(spec.job, 256);
  f(spec.generation);
  f(spec.rank);
  f(spec.argv, kMaxStrings, kMaxArgBytes);
  f(spec.env, kMaxStrings, kMaxArgBytes);
  f(spec.cwd, kMaxSpecPath);
  f(spec.set_ids);
  f(spec.uid);
  f(spec.gid);
  f(spec.groups, kMaxStrings);
  f(spec.umask);
  f(spec.core_limit);
  f(spec.log_path, kMaxSpecPath);
  f(spec.log_head_bytes);
  f(spec.log_tail_bytes);
  f(spec.log_append);
  f(spec.task_record_path, kMaxSpecPath);
  f(spec.exit_record_path, kMaxSpecPath);
  f(spec.socket_path, kMaxSpecPath);
  f(spec.page_path, kMaxSpecPath);
  f(spec.nonce, 64);
  f(spec.secret, 64 << 10);
  f(spec.secret_fd);
  f(spec.ports, kMaxStrings);
  f(spec.grace_nanos);
  f(spec.drain_nanos);
  f(spec.cgroup, kMaxSpecPath);
  f(spec.container.name, 256);
  f(spec.container.signal, kMaxStrings, kMaxArgBytes);
  f(spec.container.inspect, kMaxStrings, kMaxArgBytes);
  f(spec.container.remove, kMaxStrings, kMaxArgBytes);
  f(spec.container.reports);
  if (fenced) f(spec.fence_nanos);
}

bool Say(std::string_view text, std::string* error) {
  error->assign(text);
  return false;
}

bool HasNul(const std::vector<std::string>& strings) {
  for (const std::string& s : strings) {
    if (s.find('\0') != std::string::npos) return true;
  }
  return false;
}

bool IsAbsolutePath(const std::string& path) {
  return !path.empty() && path[0] == '/' && path.size() <= kMaxSpecPath &&
         path.find('\0') == std::string::npos;
}

bool CheckPaths(const ShimSpec& spec, std::string* error) {
  const std::pair<const char*, const std::string*> paths[] = {
      {"working directory", &spec.cwd},
      {"log", &spec.log_path},
      {"task record", &spec.task_record_path},
      {"exit record", &spec.exit_record_path},
      {"socket", &spec.socket_path},
  };
  for (const auto& [what, path] : paths) {
    if (IsAbsolutePath(*path)) continue;
    return Say("the path of the " + std::string(what) + ", \"" + *path +
                   "\", is not an absolute path",
               error);
  }
  if (spec.socket_path.size() > kMaxSocketPath) {
    return Say("the socket path " + spec.socket_path + " has " +
                   std::to_string(spec.socket_path.size()) +
                   " bytes; Linux allows at most " +
                   std::to_string(kMaxSocketPath) +
                   ": choose a shorter runtime directory",
               error);
  }
  return true;
}

}  // namespace

bool CheckShimSpec(const ShimSpec& spec, std::string* error) {
  if (spec.job.empty()) return Say("the job has no name", error);
  if (spec.argv.empty() || spec.argv[0].empty()) {
    return Say("the command is empty", error);
  }
  if (HasNul(spec.argv) || HasNul(spec.env)) {
    return Say("an argument or variable contains a NUL byte", error);
  }
  for (const std::string& variable : spec.env) {
    const size_t equals = variable.find('=');
    if (equals == 0 || equals == std::string::npos) {
      return Say("the variable \"" + variable + "\" is not NAME=value", error);
    }
  }
  if (!CheckPaths(spec, error)) return false;
  if (!spec.cgroup.empty() && !IsAbsolutePath(spec.cgroup)) {
    return Say("the path of the cgroup, \"" + spec.cgroup +
                   "\", is not an absolute path",
               error);
  }
  if (spec.nonce.size() < 16 || spec.nonce.size() > 64) {
    return Say("the nonce does not have 16 to 64 bytes", error);
  }
  if (!spec.secret.empty() && (spec.secret_fd < 3 || spec.secret_fd > 255)) {
    return Say("the secret's file descriptor is not in 3 .. 255", error);
  }
  if (!spec.container.name.empty() &&
      (spec.container.signal.empty() || spec.container.inspect.empty() ||
       spec.container.remove.empty())) {
    return Say("the container has no stop command", error);
  }
  if (spec.umask > 0777) return Say("the umask is above 0777", error);
  if (spec.grace_nanos < 0 || spec.drain_nanos < 0 || spec.fence_nanos < 0) {
    return Say("a duration is negative", error);
  }
  return true;
}

std::string EncodeShimSpec(const ShimSpec& spec) {
  const bool fenced = spec.fence_nanos != 0;
  RecordWriter writer;
  SpecFieldsOf(writer, spec, fenced);
  return Seal(kSpecMagic, fenced ? kFencedSpecVersion : kSpecVersion,
              writer.Take());
}

bool DecodeShimSpec(std::string_view bytes, ShimSpec* spec,
                    std::string* error) {
  std::string_view payload;
  const char* what = "the shim's spec";
  const bool fenced =
      Unseal(what, kSpecMagic, kFencedSpecVersion, bytes, &payload, error);
  if (!fenced &&
      !Unseal(what, kSpecMagic, kSpecVersion, bytes, &payload, error)) {
    return false;
  }
  RecordReader reader(payload);
  SpecFieldsOf(reader, *spec, fenced);
  if (!reader.Complete()) {
    return Say("the shim's spec has a field out of range", error);
  }
  return CheckShimSpec(*spec, error);
}

}  // namespace lockstep::worker::task
