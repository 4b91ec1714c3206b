#include "client/cli/training_packages.h"

#include <errno.h>
#include <fmt/format.h>
#include <limits.h>
#include <stdlib.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <ostream>
#include <thread>

#include "common/base/file.h"

namespace lockstep::cli {
namespace {

constexpr Duration kUploadTick = std::chrono::milliseconds(100);
// A shorter upload prints only its end. Without a terminal, progress is printed
// every few seconds.
constexpr Duration kQuiet = std::chrono::seconds(1);
constexpr Duration kPlainUploadInterval = std::chrono::seconds(5);

// Returns the last part of a folder's path as written. If that is not a name
// (".", "a/.."), returns the last part of the resolved path.
std::string FolderName(const std::string& folder) {
  std::string path = folder;
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  std::string name = path.substr(path.rfind('/') + 1);
  if (name == "." || name == ".." || name.empty()) {
    char real[PATH_MAX];
    if (!realpath(path.c_str(), real)) return "";
    path = real;
    name = path.substr(path.rfind('/') + 1);
  }
  return name;
}

// True if module "a.b" is in `folder`: a/b.py, a/b/__main__.py.
bool HasModule(const std::string& folder, std::string module) {
  std::replace(module.begin(), module.end(), '.', '/');
  FileSystem* const files = RealFileSystem();
  return files->Exists(JoinPath(folder, module + ".py")) ||
         files->Exists(JoinPath(folder, module + "/__main__.py"));
}

std::string Size(int64_t bytes) {
  return bytes < 1 << 20 ? fmt::format("{:.1f} KiB", bytes / 1024.0)
                         : fmt::format("{:.1f} MiB", bytes / 1048576.0);
}

v1::Package ToMessage(const Package& package) {
  v1::Package out;
  out.set_digest(package.digest);
  out.set_bytes(package.bytes);
  out.set_format(static_cast<v1::PackageFormat>(package.format));
  out.set_file_name(package.file_name);
  return out;
}

// Uploads on another thread, while this one polls for Ctrl-C and prints
// progress.
Status Upload(const Cli& cli, Client* client, const PackedPackage& package,
              bool quiet) {
  CliEnvironment* const env = cli.env;
  StopToken stop;
  StopToken done;
  std::atomic<uint64_t> sent = 0;
  StatusOr<bool> existed = Internal("not asked yet");
  UploadOptions options;
  options.on_progress = [&](uint64_t bytes) { sent = bytes; };
  const MonoTime start = env->clock->Now().mono;
  std::thread uploader([&] {
    existed = client->UploadPackage(
        ToMessage(package.package),
        [&](uint64_t offset, char* buffer, size_t size) {
          return ReadPackage(package, offset, buffer, size);
        },
        options, &stop);
    done.Stop();
  });
  const std::string& name = package.package.file_name;
  const Duration interval =
      env->err_is_tty ? kUploadTick : kPlainUploadInterval;
  MonoTime next = start + (env->err_is_tty ? kQuiet : kPlainUploadInterval);
  bool live = false;
  while (!done.WaitFor(kUploadTick)) {
    if (env->interrupted && env->interrupted()) stop.Stop();
    const MonoTime now = env->clock->Now().mono;
    if (quiet || now < next) continue;
    next = now + interval;
    const std::string text = UploadText(name, static_cast<int64_t>(sent.load()),
                                        package.package.bytes, now - start);
    *env->err << (env->err_is_tty ? "\r" + text + "\033[K" : text + "\n")
              << std::flush;
    live = env->err_is_tty;
  }
  uploader.join();
  if (live) *env->err << "\r\033[K";
  if (!existed.ok()) return Annotate(existed.status(), "uploading " + name);
  if (quiet) return OkStatus();
  *env->err << fmt::format("package {} ({}) {}\n", name,
                           Size(package.package.bytes),
                           *existed ? "exists already" : "uploaded");
  return OkStatus();
}

}  // namespace

StatusOr<ModulePlace> FindModule(const std::string& folder,
                                 const std::string& module) {
  const auto info = RealFileSystem()->Stat(folder);
  if (!info.ok()) return Annotate(info.status(), "--package-path");
  if (!info->is_directory) {
    return InvalidArgument("--package-path {}: is a file; give its folder",
                           Printable(folder));
  }
  char real[PATH_MAX];
  if (!realpath(folder.c_str(), real)) {
    return ErrnoStatus(errno, "--package-path " + folder);
  }
  const std::string name = FolderName(folder);
  const size_t dot = module.find('.');
  const bool named_first = module.substr(0, dot) == name;
  const bool inside = named_first && dot != std::string::npos
                          ? HasModule(folder, module.substr(dot + 1))
                          : named_first && RealFileSystem()->Exists(
                                               JoinPath(folder, "__main__.py"));
  ModulePlace place;
  place.root = real;
  if (inside) {
    place.prefix = name;
    // For a link, its parent folder has the name.
    std::string path = folder;
    while (path.size() > 1 && path.back() == '/') path.pop_back();
    path = path.ends_with("/" + name) ? path.substr(0, path.rfind('/') + 1)
                                      : JoinPath(place.root, "..");
    if (realpath(path.c_str(), real)) place.root = real;
  } else if (!HasModule(folder, module)) {
    std::string file = module;
    std::replace(file.begin(), file.end(), '.', '/');
    return InvalidArgument(
        "--module-name {}: there is no {}.py next to or in the folder {} of "
        "--package-path; for a folder trainer with task.py give trainer.task",
        Printable(module), Printable(file), Printable(folder));
  }
  return place;
}

StatusOr<PackedPackage> PackForModule(const std::string& folder,
                                      const std::string& module,
                                      const CliEnvironment& env) {
  LOCKSTEP_ASSIGN_OR_RETURN(const ModulePlace place,
                            FindModule(folder, module));
  PackOptions options;
  options.stopped = env.interrupted;
  options.prefix = place.prefix;
  auto packed = PackFolder(folder, options);
  if (!packed.ok()) return Annotate(packed.status(), "--package-path");
  return packed;
}

StatusOr<std::vector<PackedPackage>> OpenPackages(
    const std::vector<std::string>& paths, const CliEnvironment& env) {
  std::vector<PackedPackage> out;
  for (const std::string& path : paths) {
    if (path.find("://") != std::string::npos) {
      return InvalidArgument(
          "--packages {}: URLs are not downloaded; give a file of this "
          "machine (trainingInput.packageUris in the file)",
          Printable(path));
    }
    auto package =
        OpenPackageFile(JoinPath(env.working_directory, path), PackLimits());
    if (!package.ok()) return Annotate(package.status(), "--packages");
    out.push_back(*std::move(package));
  }
  return out;
}

std::string NoteOfSetup(const std::string& folder, const std::string& module,
                        const CliEnvironment& env) {
  constexpr uint64_t kMost = 1 << 20;
  const auto place =
      FindModule(JoinPath(env.working_directory, folder), module);
  if (!place.ok()) return "";
  const std::string path = JoinPath(place->root, "setup.py");
  const auto setup = RealFileSystem()->Read(path, kMost);
  if (!setup.ok() || setup->find("install_requires") == setup->npos) return "";
  return fmt::format(
      "--package-path: {} has install_requires, but a folder is not "
      "installed: the runtime must have them, or give an sdist or a wheel by "
      "--packages",
      Printable(path));
}

std::string UploadText(const std::string& name, int64_t sent, int64_t size,
                       Duration elapsed) {
  std::string text = fmt::format("  uploading {}: {} of {}", Printable(name),
                                 Size(sent), Size(size));
  if (elapsed < kQuiet || sent <= 0) return text;
  const double rate = static_cast<double>(sent) / ToSeconds(elapsed);
  const double left = static_cast<double>(std::max<int64_t>(0, size - sent));
  return text + fmt::format(", {}/s, {:.0f} s left",
                            Size(static_cast<int64_t>(rate)),
                            std::ceil(left / rate));
}

Status UploadAll(const Cli& cli, Client* client,
                 const std::vector<PackedPackage>& packages, bool quiet) {
  for (const PackedPackage& package : packages) {
    LOCKSTEP_RETURN_IF_ERROR(Upload(cli, client, package, quiet));
  }
  return OkStatus();
}

StatusOr<v1::SubmitJobResponse> SubmitUploaded(
    const Cli& cli, Client* client, const std::vector<PackedPackage>& packages,
    const std::function<StatusOr<v1::SubmitJobResponse>()>& submit) {
  StatusOr<v1::SubmitJobResponse> response = submit();
  const bool missing = !response.ok() && !packages.empty() &&
                       ReasonOf(response.status()) == "PACKAGE_MISSING";
  if (!missing) return response;
  LOCKSTEP_RETURN_IF_ERROR(UploadAll(cli, client, packages));
  return submit();
}

std::vector<v1::Package> PackageMessages(
    const std::vector<PackedPackage>& packages) {
  std::vector<v1::Package> out;
  for (const PackedPackage& package : packages) {
    out.push_back(ToMessage(package.package));
  }
  return out;
}

}  // namespace lockstep::cli
