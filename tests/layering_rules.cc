#include "tests/layering_rules.h"

#include <algorithm>
#include <cctype>
#include <map>
#include <regex>
#include <set>
#include <sstream>
#include <string_view>

namespace lockstep {
namespace {

using Strings = std::vector<std::string>;

// What the files of a folder may include beside the folder's own. A folder
// that is not here has nobody who thought about it, and is refused.
const std::map<std::string, std::set<std::string>>& Layers() {
  static const auto& layers = *new std::map<std::string, std::set<std::string>>{
      {"common/base", {}},
      {"common/cli", {"common/base"}},
      {"common/model", {"common/base"}},
      {"common/os", {"common/base"}},
      {"common/config", {"common/base", "common/cli", "common/model"}},
      {"common/pki", {"common/base", "proto"}},
      {"common/filter", {"common/base"}},
      {"common/logs", {"common/base", "common/filter", "common/model"}},
      {"common/http", {"common/base", "common/os"}},
      {"common/wire",
       {"common/base", "common/model", "common/training", "proto"}},
      {"common/yaml", {"common/base", "common/model"}},
      {"common/training", {"common/base", "common/model", "common/yaml"}},
      {"common/rpc", {"common/base", "common/pki", "proto"}},

      {"server/core", {"common/base", "common/model", "common/training"}},
      {"server/packages", {"common/base", "common/model"}},
      {"server/site", {"common/base", "common/training"}},
      {"server/logs", {"common/base", "common/model", "server/core"}},
      {"server/store",
       {"common/base", "common/model", "common/wire", "server/core", "proto"}},
      {"server/coordinator",
       {"common/base", "common/model", "common/training", "server/core",
        "server/store"}},
      {"server/history",
       {"common/base", "common/model", "server/coordinator", "server/core"}},
      {"server/query",
       {"common/base", "common/filter", "common/model", "common/training",
        "server/coordinator", "server/core"}},
      {"server/metrics",
       {"common/base", "common/model", "common/pki", "common/rpc",
        "common/training", "proto", "server/coordinator", "server/core",
        "server/notify", "server/packages", "server/site", "server/store"}},
      {"server/notify",
       {"common/base", "common/model", "common/os", "server/coordinator",
        "server/core"}},
      {"server/stream",
       {"common/base", "common/pki", "common/rpc", "server/metrics"}},
      {"server/log_stream",
       {"common/base", "common/wire", "proto", "server/coordinator",
        "server/core", "server/logs", "server/metrics", "server/query",
        "server/stream"}},
      {"server/page",
       {"common/base", "common/http", "common/logs", "common/model",
        "common/training", "server/coordinator", "server/core",
        "server/history", "server/logs", "server/metrics", "server/query",
        "server/service"}},
      {"server/service",
       {"common/base", "common/model", "common/pki", "common/rpc",
        "common/training", "common/wire", "proto", "server/coordinator",
        "server/core", "server/log_stream", "server/logs", "server/metrics",
        "server/packages", "server/query", "server/site", "server/store",
        "server/stream"}},

      {"worker/task", {"common/base"}},
      {"worker/shim", {"common/base", "common/os", "worker/task"}},
      {"worker/devices", {"common/base", "common/model", "common/os"}},
      {"worker/collective", {"common/base"}},
      {"worker/collective/shm", {"common/base", "worker/collective"}},
      {"worker/collective/tcp", {"common/base", "worker/collective"}},
      {"worker/collective/nccl", {"common/base", "worker/collective"}},
      {"worker/collective/hierarchical",
       {"common/base", "worker/collective", "worker/collective/shm",
        "worker/collective/tcp"}},
      {"worker/collective/factory",
       {"common/base", "worker/collective", "worker/collective/hierarchical",
        "worker/collective/shm", "worker/collective/tcp"}},
      {"worker/gpu_check", {"common/base"}},
      {"worker/process_group",
       {"common/base", "worker/collective", "worker/collective/factory",
        "worker/collective/hierarchical"}},
      {"worker/data", {"common/base", "common/cli"}},
      {"worker/checkpoint", {"common/base"}},
      {"worker/rank_link",
       {"common/base", "proto", "worker/collective", "worker/task"}},
      {"worker/runtime",
       {"common/base", "common/model", "worker/collective",
        "worker/collective/factory", "worker/rank_link", "worker/task"}},
      {"worker/bench",
       {"common/base", "common/cli", "worker/collective",
        "worker/collective/factory", "worker/runtime", "worker/task"}},
      {"worker/trainer",
       {"common/base", "common/cli", "worker/checkpoint", "worker/collective",
        "worker/data", "worker/runtime"}},
      {"worker/package", {"common/base", "common/model", "common/os"}},
      {"worker/container",
       {"common/base", "common/model", "common/os", "worker/task"}},
      {"worker/evidence",
       {"common/base", "common/model", "common/os", "worker/container",
        "worker/shim"}},
      {"worker/agent/core",
       {"common/base", "common/model", "worker/rank_link"}},
      {"worker/agent/loop", {"common/base", "worker/agent/core"}},
      {"worker/agent/host",
       {"common/base", "common/model", "common/os", "worker/devices",
        "worker/task"}},
      {"worker/agent/store",
       {"common/base", "common/model", "common/wire", "worker/agent/core",
        "worker/agent/loop", "worker/task"}},
      {"worker/agent/ports",
       {"common/base", "common/model", "common/os", "worker/agent/core"}},
      {"worker/agent/containers",
       {"common/base", "worker/agent/host", "worker/agent/loop",
        "worker/container", "worker/task"}},
      {"worker/agent/prepare",
       {"common/base", "common/model", "common/os", "worker/agent/containers",
        "worker/agent/core", "worker/agent/host", "worker/agent/loop",
        "worker/agent/ports", "worker/agent/store", "worker/container",
        "worker/package"}},
      {"worker/agent/progress", {"common/base", "common/model"}},
      {"worker/agent/readings",
       {"common/base", "common/model", "common/os", "common/wire",
        "worker/agent/core", "worker/agent/host", "worker/agent/loop",
        "worker/agent/metrics", "worker/agent/progress", "worker/agent/store",
        "worker/agent/work", "worker/devices", "worker/shim", "worker/task"}},
      {"worker/agent/work",
       {"common/base", "common/model", "common/os", "common/wire",
        "worker/agent/core", "worker/agent/host", "worker/agent/loop",
        "worker/agent/store"}},
      {"worker/agent/sessions",
       {"common/base", "common/model", "common/os", "proto",
        "worker/agent/core", "worker/agent/host", "worker/agent/loop",
        "worker/container", "worker/evidence", "worker/shim"}},
      {"worker/agent/checks",
       {"common/base", "common/model", "common/os", "worker/agent/host",
        "worker/agent/loop"}},
      {"worker/agent/stream",
       {"common/base", "common/model", "common/rpc", "common/wire", "proto",
        "worker/agent/checks", "worker/agent/core", "worker/agent/host",
        "worker/agent/loop", "worker/agent/sessions", "worker/agent/store",
        "worker/agent/work", "worker/package", "worker/shim", "worker/task"}},
      {"worker/agent/exits",
       {"common/base", "common/model", "common/os", "worker/agent/core",
        "worker/agent/host", "worker/agent/loop", "worker/agent/ports",
        "worker/agent/readings", "worker/agent/store", "worker/agent/stream",
        "worker/shim", "worker/task"}},
      {"worker/agent/evidence",
       {"common/base", "common/model", "common/wire", "worker/agent/core",
        "worker/agent/host", "worker/agent/loop", "worker/agent/readings",
        "worker/agent/store", "worker/devices", "worker/evidence",
        "worker/task"}},
      {"worker/agent/link",
       {"common/base", "common/model", "common/wire", "proto",
        "worker/agent/core", "worker/agent/host", "worker/agent/loop",
        "worker/rank_link"}},
      {"worker/agent/warm",
       {"common/base", "common/model", "common/os", "worker/agent/core",
        "worker/agent/host", "worker/agent/loop", "worker/agent/prepare",
        "worker/shim", "worker/task"}},
      {"worker/agent/ranks",
       {"common/base",
        "common/model",
        "common/os",
        "common/wire",
        "proto",
        "worker/agent/containers",
        "worker/agent/core",
        "worker/agent/evidence",
        "worker/agent/exits",
        "worker/agent/host",
        "worker/agent/link",
        "worker/agent/loop",
        "worker/agent/metrics",
        "worker/agent/ports",
        "worker/agent/prepare",
        "worker/agent/readings",
        "worker/agent/store",
        "worker/agent/stream",
        "worker/agent/warm",
        "worker/agent/work",
        "worker/container",
        "worker/devices",
        "worker/evidence",
        "worker/package",
        "worker/rank_link",
        "worker/shim",
        "worker/task"}},
      {"worker/agent/metrics",
       {"common/base", "common/model", "worker/agent/host", "worker/devices",
        "worker/task"}},
      {"worker/agent",
       {"common/base", "common/model", "common/wire", "proto",
        "worker/agent/checks", "worker/agent/containers", "worker/agent/core",
        "worker/agent/host", "worker/agent/loop", "worker/agent/metrics",
        "worker/agent/prepare", "worker/agent/ranks", "worker/agent/readings",
        "worker/agent/sessions", "worker/agent/store", "worker/agent/stream",
        "worker/agent/work", "worker/devices", "worker/rank_link"}},

      {"client/lib", {"common/base", "common/pki", "common/rpc", "proto"}},
      {"client/local",
       {"client/lib", "common/base", "common/model", "common/os", "common/pki",
        "common/training"}},
      {"client/package", {"common/base", "common/model", "common/os"}},
      {"client/cli",
       {"client/lib", "client/local", "client/package", "common/base",
        "common/cli", "common/filter", "common/logs", "common/model",
        "common/os", "common/pki", "common/training", "common/wire",
        "common/yaml", "proto"}},
  };
  return layers;
}

// Decisions: no lock, thread, file, process or network, and no clock, random
// source or environment that is not handed in. Folders, or files by the stem.
const Strings kPure = {"common/filter/",
                       "common/logs/",
                       "common/model/",
                       "common/training/",
                       "common/yaml/",
                       "server/core/",
                       "server/history/history",
                       "server/history/history_codec",
                       "server/history/history_plot",
                       "server/history/job_history",
                       "server/history/job_sampler",
                       "server/query/job_filter",
                       "server/logs/log_filter",
                       "server/logs/severity",
                       "worker/agent/core/",
                       "worker/agent/evidence/evidence_size",
                       "worker/agent/progress/",
                       "worker/agent/ranks/rank_environment",
                       "worker/agent/warm/warm_spec",
                       "worker/checkpoint/layout",
                       "worker/checkpoint/manifest",
                       "worker/checkpoint/retention",
                       "worker/checkpoint/sealed_json",
                       "worker/checkpoint/tensor_view",
                       "worker/checkpoint/vote",
                       "worker/collective/factory/backend_choice.",
                       "worker/collective/bucket_plan",
                       "worker/collective/hierarchical/host_layout",
                       "worker/collective/hierarchical/stage_plan.",
                       "worker/collective/shm/chunks",
                       "worker/collective/shm/started",
                       "worker/data/permutation",
                       "worker/evidence/native_text",
                       "worker/evidence/py_spy",
                       "worker/evidence/text.",
                       "worker/data/shard_plan",
                       "worker/process_group/split_matrix",
                       "worker/rank_link/text",
                       "worker/runtime/control_word",
                       "worker/runtime/order_book.",
                       "worker/runtime/order_speaker",
                       "worker/runtime/order_text",
                       "worker/runtime/phase_timer",
                       "worker/runtime/step_controller",
                       "worker/trainer/schedule"};
// Generated messages ("lockstep/", "google/") are not pure: a decision takes
// and gives the structs of common/model, so that the bytes of a file or of a
// peer stay at the border, where common/wire checks them.
const Strings kNotInPure = {"lockstep/",
                            "google/",
                            "grpc",
                            "sqlite3.h",
                            "gloo/",
                            "torch/",
                            "openssl/",
                            "boost/",
                            "prometheus/",
                            "common/base/fault_point.h",
                            "common/base/fd.h",
                            "common/base/file.h",
                            "common/base/logging.h",
                            "common/base/mutex.h",
                            "atomic",
                            "condition_variable",
                            "filesystem",
                            "fstream",
                            "future",
                            "iostream",
                            "mutex",
                            "semaphore",
                            "shared_mutex",
                            "thread",
                            "sys/",
                            "unistd.h",
                            "fcntl.h",
                            "pthread.h",
                            "random"};
// In code, not in comments.
const Strings kNotSaidInPure = {
    R"(_clock::now\()", R"(\bSystemClock\b)",    R"(\bclock_gettime\()",
    R"(\bgetenv\()",    R"(\bgettimeofday\()",   R"(\btime\(nullptr\))",
    R"(\bfopen\()",     R"(\bABSL_GUARDED_BY\()"};

// Built once more into the static shim, which is of nothing but libc: no
// Abseil, no fmt, nothing else of ours.
const Strings kStdOnly = {"common/base/log_line",
                          "worker/task/",
                          "worker/shim/connect",
                          "worker/shim/container.",
                          "worker/shim/container_report",
                          "worker/shim/container_signal",
                          "worker/shim/exit_recorder",
                          "worker/shim/helper",
                          "worker/shim/holder.",
                          "worker/shim/init",
                          "worker/shim/io",
                          "worker/shim/launch",
                          "worker/shim/log_writer",
                          "worker/shim/main",
                          "worker/shim/process_tree",
                          "worker/shim/rank_output",
                          "worker/shim/server",
                          "worker/shim/shim.",
                          "worker/shim/session.",
                          "worker/shim/session_report",
                          "worker/shim/shim_end"};
const Strings kStdOnlyMayInclude = {"worker/task/", "worker/shim/",
                                    "common/base/fd.h",
                                    "common/base/log_line.h"};

// A foreign library is known in few places, which turn its errors into Status.
const std::map<std::string, Strings>& ForeignLibraries() {
  static const auto& libraries = *new std::map<std::string, Strings>{
      {"archive", {"client/package/", "worker/package/"}},
      {"boost/", {"common/http/engine_parts.h"}},
      {"CLI/", {"common/cli/parse.cc"}},
      {"elfutils/", {"worker/evidence/stacks_main.cc"}},
      {"gloo/", {"tests/bench/peers/gloo_"}},
      {"grpc/", {"common/rpc/"}},
      {"grpcpp/",
       {"common/rpc/", "client/lib/", "server/service/", "server/stream/",
        "worker/agent/sessions/session_client",
        "worker/agent/stream/coordinator_client",
        "worker/agent/stream/package_client"}},
      {"isa-l/", {"common/base/crc32c.cc", "common/http/gzip"}},
      {"jpeglib.h", {"worker/data/jpeg.cc"}},
      {"nccl.h", {"worker/collective/nccl/", "worker/gpu_check/"}},
      {"nvml.h", {}},  // Read through dlopen, by declarations of our own.
      {"openssl/",
       {"common/base/sha256.h", "common/pki/", "common/http/",
        "worker/collective/handshake.cc", "worker/collective/shm/handshake.",
        "worker/collective/tcp/auth.cc"}},
      {"prometheus/",
       {"common/http/", "server/metrics/", "server/stream/stream_readers",
        "worker/agent/metrics/"}},
      {"re2/",
       {"common/filter/", "common/logs/", "common/model/image_name",
        "common/model/progress_pattern", "server/logs/log_filter.cc"}},
      {"spdlog/", {"common/base/logging."}},
      {"curl/", {"server/notify/delivery.cc"}},
      {"sqlite3.h", {"server/store/checked_vfs.h", "server/store/sqlite.h"}},
      {"torch/", {"worker/trainer/"}},
      {"yaml-cpp/",
       {"client/cli/", "common/config/", "common/http/web_config.cc",
        "common/yaml/", "server/config.cc", "server/notify/receivers.cc"}},
      {"zlib.h",
       {"client/package/gzip_writer.cc", "common/base/gzip_decoder."}},
  };
  return libraries;
}

bool StartsWith(std::string_view text, const Strings& prefixes) {
  return std::any_of(prefixes.begin(), prefixes.end(),
                     [&](const auto& p) { return text.starts_with(p); });
}

// Tests, and what only they link. They sit beside the code.
bool IsForTests(std::string_view path) {
  if (path.starts_with("tests/")) return true;
  static const std::regex name(
      R"(.*(_test|_test_util|_fixture|/testing|/scenes|/fake_\w*|/memory_file_system)\.(cc|h))");
  return std::regex_match(path.begin(), path.end(), name);
}

// "server/core" of "server/core/job.h"; "server" of "server/main.cc", which,
// as every main, picks what it likes of its own component.
std::string Folder(const std::string& path) {
  if (StartsWith(path, {"lockstep/v1/", "google/"})) return "proto";
  return path.substr(0, path.rfind('/'));
}
std::string Component(const std::string& path) {
  return path.substr(0, path.find('/'));
}
bool IsMain(const std::string& path) {
  const std::string folder = Folder(path);
  return folder == "server" || folder == "worker" || folder == "client";
}

struct Include {
  std::string path;
  bool quoted = false;
};

struct Source {
  std::string path;
  std::vector<Include> includes;
  std::string code;  // Without comments.
};

Source Read(const std::string& path, const std::string& text) {
  Source source{path, {}, {}};
  static const std::regex line_of(
      R"re(\s*#\s*include\s*(["<])([^">]+)[">].*)re");
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    std::smatch match;
    if (std::regex_match(line, match, line_of)) {
      source.includes.push_back({match[2], match[1] == "\""});
    }
    source.code += line.substr(0, line.find("//")) + "\n";
  }
  return source;
}

class Checker {
 public:
  explicit Checker(Source source) : source_(std::move(source)) {}

  Strings Check() {
    for (const Include& include : source_.includes) {
      CheckForeign(include);
      if (!include.quoted || include.path.starts_with("absl/")) continue;
      CheckOwn(include);
    }
    CheckStdOnly();
    CheckPure();
    CheckGuard();
    return found_;
  }

 private:
  void Say(const std::string& what) {
    found_.push_back(source_.path + ": " + what);
  }

  // Between our own files.
  void CheckOwn(const Include& include) {
    const std::string& from = source_.path;
    const std::string& to = include.path;
    if (to.find('/') == std::string::npos || to.starts_with(".")) {
      return Say("includes \"" + to + "\", not by its path from the root");
    }
    if (from.starts_with("tests/")) return;
    const std::string here = Component(from);
    const std::string there = Component(to);
    const std::set<std::string> sides = {"server", "worker", "client"};
    // Tests beside the code share clocks, stores and the like.
    if (IsForTests(from) && to.starts_with("tests/support/")) return;
    if (there == "tests" || (sides.contains(there) && there != here)) {
      return Say("includes \"" + to + "\": " + here + "/ must not know " +
                 there + "/");
    }
    if (IsForTests(from)) return;
    if (IsForTests(to)) Say("includes \"" + to + "\", which is for tests");
    if (IsMain(from) || Folder(from) == Folder(to)) return;
    const auto layer = Layers().find(Folder(from));
    if (layer == Layers().end()) {
      return Say("is in a folder without a place in the layers");
    }
    if (!layer->second.contains(Folder(to))) {
      Say("includes \"" + to + "\": " + Folder(from) + "/ is not built on " +
          Folder(to) + "/");
    }
  }

  void CheckForeign(const Include& include) {
    if (IsForTests(source_.path)) return;
    for (const auto& [library, places] : ForeignLibraries()) {
      if (include.path.starts_with(library) &&
          !StartsWith(source_.path, places)) {
        Say("includes <" + include.path + ">, which has other places");
      }
    }
  }

  void CheckStdOnly() {
    if (!StartsWith(source_.path, kStdOnly) || IsForTests(source_.path)) return;
    for (const Include& include : source_.includes) {
      const bool foreign = include.path.find("fmt/") == 0 ||
                           include.path.ends_with(".hpp") ||
                           include.path.ends_with(".pb.h");
      if (foreign ||
          (include.quoted && !StartsWith(include.path, kStdOnlyMayInclude))) {
        Say("includes " + include.path + "; the shim is of libc only");
      }
    }
  }

  void CheckPure() {
    const auto is_stem = [&](const std::string& pure) {
      return source_.path.starts_with(pure) &&
             (pure.ends_with("/") || source_.path[pure.size()] == '.');
    };
    if (std::none_of(kPure.begin(), kPure.end(), is_stem)) return;
    if (IsForTests(source_.path)) return;
    for (const Include& include : source_.includes) {
      const auto is = [&](const std::string& not_pure) {
        return include.path == not_pure ||
               (include.path.starts_with(not_pure) && not_pure.back() == '/') ||
               (not_pure == "grpc" && include.path.starts_with("grpc"));
      };
      if (std::any_of(kNotInPure.begin(), kNotInPure.end(), is)) {
        Say("is pure and includes " + include.path);
      }
    }
    for (const std::string& said : kNotSaidInPure) {
      std::smatch match;
      if (std::regex_search(source_.code, match, std::regex(said))) {
        Say("is pure and says " + match.str());
      }
    }
  }

  void CheckGuard() {
    if (!source_.path.ends_with(".h")) return;
    std::string guard = "LOCKSTEP_" + source_.path + "_";
    for (char& c : guard) {
      c = std::isalnum(static_cast<unsigned char>(c)) ? std::toupper(c) : '_';
    }
    if (source_.code.find("#ifndef " + guard + "\n#define " + guard + "\n") ==
        std::string::npos) {
      Say("lacks the guard " + guard);
    }
  }

  const Source source_;
  Strings found_;
};

}  // namespace

Strings LayeringViolations(const std::string& path, const std::string& text) {
  return Checker(Read(path, text)).Check();
}

}  // namespace lockstep
