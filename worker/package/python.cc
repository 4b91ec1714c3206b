#include "worker/package/python.h"

#include <algorithm>
#include <utility>

#include "common/base/file.h"
#include "worker/package/tool.h"

namespace lockstep::worker::package {
namespace {

// Exit code of a question whose last line is the sentence of the refusal.
constexpr int kRefused = 3;

// argv: target, path... Interpreters before 3.8 cannot check this and pass.
constexpr char kRequirements[] = R"py(
import sys
target = sys.argv[1]
sys.path[:0] = sys.argv[2:]
try:
    from importlib import metadata
    try:
        from packaging.requirements import Requirement
    except ImportError:
        from pip._vendor.packaging.requirements import Requirement
except ImportError:
    sys.exit(0)
missing = []
for dist in metadata.distributions(path=[target]):
    for text in dist.requires or ():
        need = Requirement(text)
        if need.marker and not need.marker.evaluate({"extra": ""}):
            continue
        try:
            version = metadata.version(need.name)
        except metadata.PackageNotFoundError:
            missing.append("%s%s" % (need.name, need.specifier))
            continue
        if need.specifier and not need.specifier.contains(
                version, prereleases=True):
            missing.append("%s%s (%s is there)" % (
                need.name, need.specifier, version))
if missing:
    print(", ".join(sorted(set(missing))[:20]))
    sys.exit(3)
)py";

// argv: module, path... Asks the finders as `python -m` would, and imports
// nothing.
constexpr char kModule[] = R"py(
import difflib
import os
import sys
name, own = sys.argv[1], sys.argv[2:]
sys.path[:0] = own


def find(full, path):
    for finder in sys.meta_path:
        spec = getattr(finder, "find_spec", lambda *_: None)(full, path)
        if spec is not None:
            return spec
    return None


def modules():
    found, seen = set(), 0
    for top in own:
        for root, folders, files in os.walk(top):
            folders[:] = sorted(
                f for f in folders if f.isidentifier() and f != "__pycache__")
            seen += len(files)
            if seen > 20000:
                return found
            below = os.path.relpath(root, top)
            parts = [] if below == "." else below.split(os.sep)
            for file in files:
                stem, dot = os.path.splitext(file)
                if dot != ".py" or not stem.isidentifier():
                    continue
                if stem in ("__init__", "setup"):
                    continue
                if stem == "__main__":
                    if parts:
                        found.add(".".join(parts))
                else:
                    found.add(".".join(parts + [stem]))
    return found


def refuse(sentence):
    near = sorted(modules())
    close = difflib.get_close_matches(name, near, 3, 0.5)
    if close:
        sentence += "; near are " + ", ".join(close)
    elif near:
        sentence += "; there are " + ", ".join(near[:5])
        if len(near) > 5:
            sentence += " and %d more" % (len(near) - 5)
    print(sentence)
    sys.exit(3)


full, path = "", None
for part in name.split("."):
    if full and path is None:
        refuse("%s is a module, so that there is no %s" % (full, name))
    full = full + "." + part if full else part
    spec = find(full, path)
    if spec is None:
        refuse("there is no module %s" % full + (
            "" if full == name else " for " + name))
    path = spec.submodule_search_locations
if path is not None and find(full + ".__main__", path) is None:
    refuse("%s is a package without __main__.py, which cannot be run" % name)
)py";

std::vector<std::string> Environment(const Python& python, bool with_config) {
  std::vector<std::string> env = python.env;
  env.push_back("HOME=" + python.scratch);
  env.push_back("TMPDIR=" + python.scratch);
  env.push_back("PYTHONDONTWRITEBYTECODE=1");
  if (!with_config) env.push_back("PIP_CONFIG_FILE=/dev/null");
  return env;
}

StatusOr<ToolResult> Run(const Python& python, std::vector<std::string> argv,
                         Duration timeout, bool with_config,
                         Cancellation* cancel) {
  ToolOptions options;
  options.argv = std::move(argv);
  options.argv.insert(options.argv.begin(), python.program);
  options.env = Environment(python, with_config);
  options.cwd = python.scratch;
  options.user = python.user;
  options.timeout = timeout;
  options.limits = python.limits;
  auto result = RunTool(options, cancel);
  if (result.status().code() == StatusCode::kNotFound ||
      result.status().code() == StatusCode::kPermissionDenied) {
    return FailedPrecondition("cannot run the interpreter {}: {}",
                              python.program, Message(result.status()));
  }
  return result;
}

// The sentence of a refusal; "": none.
StatusOr<std::string> Ask(const Python& python, const char* script,
                          const std::vector<std::string>& args,
                          Cancellation* cancel) {
  std::vector<std::string> argv = {"-c", script};
  argv.insert(argv.end(), args.begin(), args.end());
  LOCKSTEP_ASSIGN_OR_RETURN(
      const ToolResult result,
      Run(python, std::move(argv), python.question_timeout, true, cancel));
  if (result.exit.ok()) return std::string();
  if (result.exit.known && result.exit.signal == 0 &&
      result.exit.code == kRefused) {
    return LastLine(result.output);
  }
  return FailedPrecondition("the interpreter {} {}: {}", python.program,
                            result.exit.Describe(), LastLine(result.output));
}

std::string NameOf(const std::string& path) {
  return path.substr(path.rfind('/') + 1);
}

// Of pip's output what only points elsewhere.
bool PointsElsewhere(std::string_view line) {
  static constexpr std::string_view kBegins[] = {
      "note:",
      "hint:",
      "[end of output]",
      "[notice]",
      "WARNING",
      "error: metadata-generation-failed",
      "error: subprocess-exited-with-error"};
  const size_t text = line.find_first_not_of(' ');
  // Non-ASCII characters draw frames.
  if (text == line.npos || static_cast<signed char>(line[text]) < 0)
    return true;
  line.remove_prefix(text);
  return std::any_of(
      std::begin(kBegins), std::end(kBegins),
      [&](std::string_view begin) { return line.starts_with(begin); });
}

// Returns the last line that gives a reason.
std::string WhyOf(std::string_view output) {
  if (output.find("No module named pip") != output.npos) {
    return "it has no pip: install it, for example python3-pip";
  }
  if (output.find("invalid command 'bdist_wheel'") != output.npos ||
      output.find("No module named 'wheel'") != output.npos) {
    return "building an sdist needs the module wheel: install it, for example "
           "python3-wheel, or submit a wheel";
  }
  if (output.find("Cannot import 'setuptools") != output.npos ||
      output.find("No module named 'setuptools'") != output.npos) {
    return "building an sdist needs the module setuptools: install it, for "
           "example python3-setuptools, or submit a wheel";
  }
  for (std::string_view rest = output; !rest.empty();) {
    const size_t newline = rest.find_last_of('\n');
    const std::string_view line =
        newline == rest.npos ? rest : rest.substr(newline + 1);
    if (!PointsElsewhere(line)) return LastLine(line);
    rest = newline == rest.npos ? std::string_view() : rest.substr(0, newline);
  }
  return LastLine(output);
}

}  // namespace

Status InstallDistributions(const Python& python,
                            const std::vector<std::string>& files,
                            const std::string& target, bool allow_index,
                            Cancellation* cancel) {
  std::vector<std::string> argv = {"-m",
                                   "pip",
                                   "install",
                                   "--no-input",
                                   "--disable-pip-version-check",
                                   "--no-cache-dir",
                                   "--no-warn-script-location",
                                   "--target",
                                   target};
  if (!allow_index) {
    // Building in isolation would fetch what builds it.
    argv.insert(argv.end(),
                {"--no-index", "--no-deps", "--no-build-isolation"});
  }
  std::string names;
  for (const std::string& file : files) {
    argv.push_back(file);
    names += (names.empty() ? "" : ", ") + NameOf(file);
  }
  LOCKSTEP_ASSIGN_OR_RETURN(const ToolResult result,
                            Run(python, std::move(argv), python.install_timeout,
                                allow_index, cancel));
  if (result.exit.ok()) return OkStatus();
  return FailedPrecondition("installing {} with {} failed: {}", names,
                            python.program, WhyOf(result.output));
}

Status CheckRequirements(const Python& python, const std::string& target,
                         const std::vector<std::string>& path,
                         Cancellation* cancel) {
  std::vector<std::string> args = {target};
  args.insert(args.end(), path.begin(), path.end());
  LOCKSTEP_ASSIGN_OR_RETURN(const std::string missing,
                            Ask(python, kRequirements, args, cancel));
  if (missing.empty()) return OkStatus();
  return FailedPrecondition(
      "{} lacks requirements of the packages: {}; install them there, submit "
      "them as packages, or choose a runtime that may use an index",
      python.program, missing);
}

Status CheckModule(const Python& python, const std::string& module,
                   const std::vector<std::string>& path, Cancellation* cancel) {
  std::vector<std::string> args = {module};
  args.insert(args.end(), path.begin(), path.end());
  LOCKSTEP_ASSIGN_OR_RETURN(const std::string refusal,
                            Ask(python, kModule, args, cancel));
  if (refusal.empty()) return OkStatus();
  return FailedPrecondition("{} -m {} cannot run: {}", NameOf(python.program),
                            module, refusal);
}

}  // namespace lockstep::worker::package
