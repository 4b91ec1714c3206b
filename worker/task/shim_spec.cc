#include "worker/task/shim_spec.h"

#include "worker/task/bytes.h"

namespace lockstep::task {
namespace {

constexpr std::string_view kSpecMagic = "LSSHSPEC";
constexpr uint32_t kSpecVersion = 3;
constexpr size_t kMaxSpecPath = 4095;
constexpr size_t kMaxStrings = 65536;

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
  if (spec.grace_nanos < 0 || spec.drain_nanos < 0) {
    return Say("a duration is negative", error);
  }
  return true;
}

std::string EncodeShimSpec(const ShimSpec& spec) {
  ByteWriter w;
  w.Str(spec.job);
  w.U64(spec.generation);
  w.U32(spec.rank);
  w.Strs(spec.argv);
  w.Strs(spec.env);
  w.Str(spec.cwd);
  w.Bool(spec.set_ids);
  w.U32(spec.uid);
  w.U32(spec.gid);
  w.U32s(spec.groups);
  w.U32(spec.umask);
  w.U64(spec.core_limit);
  w.Str(spec.log_path);
  w.U64(spec.log_head_bytes);
  w.U64(spec.log_tail_bytes);
  w.Bool(spec.log_append);
  w.Str(spec.task_record_path);
  w.Str(spec.exit_record_path);
  w.Str(spec.socket_path);
  w.Str(spec.page_path);
  w.Str(spec.nonce);
  w.Str(spec.secret);
  w.U32(spec.secret_fd);
  w.U32s(spec.ports);
  w.I64(spec.grace_nanos);
  w.I64(spec.drain_nanos);
  w.Str(spec.cgroup);
  w.Str(spec.container.name);
  w.Strs(spec.container.signal);
  w.Strs(spec.container.inspect);
  w.Strs(spec.container.remove);
  w.Bool(spec.container.reports);
  return Seal(kSpecMagic, kSpecVersion, w.Take());
}

bool DecodeShimSpec(std::string_view bytes, ShimSpec* spec,
                    std::string* error) {
  std::string_view payload;
  if (!Unseal("the shim's spec", kSpecMagic, kSpecVersion, bytes, &payload,
              error)) {
    return false;
  }
  ByteReader r(payload);
  spec->job = r.Str(256);
  spec->generation = r.U64();
  spec->rank = r.U32();
  spec->argv = r.Strs(kMaxStrings, kMaxArgBytes);
  spec->env = r.Strs(kMaxStrings, kMaxArgBytes);
  spec->cwd = r.Str(kMaxSpecPath);
  spec->set_ids = r.Bool();
  spec->uid = r.U32();
  spec->gid = r.U32();
  spec->groups = r.U32s(kMaxStrings);
  spec->umask = r.U32();
  spec->core_limit = r.U64();
  spec->log_path = r.Str(kMaxSpecPath);
  spec->log_head_bytes = r.U64();
  spec->log_tail_bytes = r.U64();
  spec->log_append = r.Bool();
  spec->task_record_path = r.Str(kMaxSpecPath);
  spec->exit_record_path = r.Str(kMaxSpecPath);
  spec->socket_path = r.Str(kMaxSpecPath);
  spec->page_path = r.Str(kMaxSpecPath);
  spec->nonce = r.Str(64);
  spec->secret = r.Str(64 << 10);
  spec->secret_fd = r.U32();
  spec->ports = r.U32s(kMaxStrings);
  spec->grace_nanos = r.I64();
  spec->drain_nanos = r.I64();
  spec->cgroup = r.Str(kMaxSpecPath);
  spec->container.name = r.Str(256);
  spec->container.signal = r.Strs(kMaxStrings, kMaxArgBytes);
  spec->container.inspect = r.Strs(kMaxStrings, kMaxArgBytes);
  spec->container.remove = r.Strs(kMaxStrings, kMaxArgBytes);
  spec->container.reports = r.Bool();
  if (!r.AtEnd()) return Say("the shim's spec has a field out of range", error);
  return CheckShimSpec(*spec, error);
}

}  // namespace lockstep::task
