#include "worker/package/code_folder.h"

#include <errno.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "common/base/file.h"
#include "worker/package/python.h"

namespace lockstep::worker::package {
namespace {

Status MakeOwned(const std::string& path,
                 const std::optional<PackageUser>& user) {
  LOCKSTEP_RETURN_IF_ERROR(RealFileSystem()->MakeDirs(path, 0755));
  if (user && lchown(path.c_str(), user->uid, user->gid) != 0) {
    return ErrnoStatus(errno, "giving " + path + " to the task's user");
  }
  return OkStatus();
}

// The cache's file under the package's own name; pip reads it there.
Status PlaceFile(const std::string& from, const std::string& to) {
  if (link(from.c_str(), to.c_str()) == 0) return OkStatus();
  return ErrnoStatus(errno, "linking " + to);
}

std::string MiB(int64_t bytes) {
  return fmt::format("{:.1f}", static_cast<double>(bytes) / (1 << 20));
}

class Maker {
 public:
  Maker(const CodeFolderInput& input, PackageCache* cache,
        const std::function<void(const std::string&)>& say,
        Cancellation* cancel)
      : input_(input), cache_(cache), say_(say), cancel_(cancel) {}

  StatusOr<CodeFolder> Run() {
    for (const Package& package : input_.packages) {
      LOCKSTEP_RETURN_IF_ERROR(
          Annotate(FetchOne(package), "package " + SafeFileName(package)));
    }
    LOCKSTEP_RETURN_IF_ERROR(
        RealFileSystem()->MakeDirs(input_.directory, 0711));
    folder_.path = CodePathOf(input_.directory, input_.packages);
    for (size_t i = 0; i < input_.packages.size(); ++i) {
      const Package& package = input_.packages[i];
      LOCKSTEP_RETURN_IF_ERROR(
          Annotate(PlaceOne(package, i), "package " + SafeFileName(package)));
    }
    if (!files_.empty()) LOCKSTEP_RETURN_IF_ERROR(Install());
    return std::move(folder_);
  }

 private:
  Status FetchOne(const Package& package) {
    const std::string name = SafeFileName(package);
    say_("fetching " + name);
    LOCKSTEP_ASSIGN_OR_RETURN(
        PackageCache::Lease lease,
        cache_->Get(
            package,
            [&](int64_t arrived) {
              say_(fmt::format("fetching {}: {} of {} MiB", name, MiB(arrived),
                               MiB(package.bytes)));
            },
            cancel_));
    folder_.leases.push_back(std::move(lease));
    return OkStatus();
  }

  Status PlaceOne(const Package& package, size_t index) {
    const std::string& from = folder_.leases[index].path();
    if (package.format != PackageFormat::kTree) {
      const std::string files =
          JoinPath(input_.directory, fmt::format("files/{}", index));
      LOCKSTEP_RETURN_IF_ERROR(RealFileSystem()->MakeDirs(files, 0755));
      files_.push_back(JoinPath(files, SafeFileName(package)));
      return PlaceFile(from, files_.back());
    }
    say_("unpacking " + SafeFileName(package));
    const std::string tree =
        JoinPath(input_.directory, fmt::format("tree-{}", index));
    LOCKSTEP_RETURN_IF_ERROR(MakeOwned(tree, input_.user));
    UnpackOptions options;
    options.user = input_.user;
    options.max_bytes = input_.max_bytes;
    LOCKSTEP_RETURN_IF_ERROR(UnpackFile(from, tree, options, cancel_));
    NoteRequirements(package, tree);
    return OkStatus();
  }

  // A tree is not installed, so the runtime must have its setup.py's
  // requirements.
  void NoteRequirements(const Package& package, const std::string& tree) {
    constexpr uint64_t kMost = 1 << 20;
    const auto setup =
        RealFileSystem()->Read(JoinPath(tree, "setup.py"), kMost);
    if (!setup.ok() || setup->find("install_requires") == setup->npos) return;
    folder_.notes.push_back(fmt::format(
        "setup.py of {} has install_requires, but a folder is not installed: "
        "add them to the runtime, or submit an sdist or a wheel",
        SafeFileName(package)));
  }

  Status Install() {
    if (input_.python.empty()) {
      return FailedPrecondition(
          "the job has sdists or wheels but no interpreter: choose a runtime");
    }
    say_(fmt::format("installing {} packages with pip", files_.size()));
    Python python;
    python.program = input_.python;
    python.user = input_.user;
    python.env = input_.env;
    python.scratch = JoinPath(input_.directory, "scratch");
    python.limits = input_.limits;
    if (python.limits.file_bytes == 0) {
      python.limits.file_bytes = input_.max_bytes;
    }
    const std::string site = JoinPath(input_.directory, "site");
    LOCKSTEP_RETURN_IF_ERROR(MakeOwned(python.scratch, input_.user));
    LOCKSTEP_RETURN_IF_ERROR(MakeOwned(site, input_.user));
    LOCKSTEP_RETURN_IF_ERROR(InstallDistributions(
        python, files_, site, input_.runtime.allow_index, cancel_));
    LOCKSTEP_RETURN_IF_ERROR(
        CheckRequirements(python, site, folder_.path, cancel_));
    (void)RealFileSystem()->RemoveAll(python.scratch);
    return OkStatus();
  }

  const CodeFolderInput& input_;
  PackageCache* const cache_;
  const std::function<void(const std::string&)>& say_;
  Cancellation* const cancel_;
  CodeFolder folder_;
  std::vector<std::string> files_;
};

}  // namespace

std::vector<std::string> CodePathOf(const std::string& directory,
                                    const std::vector<Package>& packages) {
  std::vector<std::string> path;
  bool installed = false;
  for (size_t i = 0; i < packages.size(); ++i) {
    if (packages[i].format == PackageFormat::kTree) {
      path.push_back(JoinPath(directory, fmt::format("tree-{}", i)));
    } else {
      installed = true;
    }
  }
  if (installed) path.push_back(JoinPath(directory, "site"));
  return path;
}

std::string SafeFileName(const Package& package) {
  std::string name = package.file_name.substr(package.file_name.rfind('/') + 1);
  std::replace_if(
      name.begin(), name.end(),
      [](char c) {
        return !((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                 (c >= '0' && c <= '9') || c == '.' || c == '_' || c == '-' ||
                 c == '+' || c == '!');
      },
      '_');
  // Nor an option of pip, nor a folder.
  if (name.size() > 200) name = name.substr(name.size() - 200);
  name.erase(0, std::min(name.find_first_not_of("-."), name.size()));
  if (!name.empty()) return name;
  switch (package.format) {
    case PackageFormat::kWheel:
      return "package-0-py3-none-any.whl";
    case PackageFormat::kSdist:
    case PackageFormat::kTree:
      break;
  }
  return "package.tar.gz";
}

StatusOr<CodeFolder> MakeCodeFolder(
    const CodeFolderInput& input, PackageCache* cache,
    const std::function<void(const std::string&)>& say, Cancellation* cancel) {
  auto made = Maker(input, cache, say, cancel).Run();
  if (!made.ok()) (void)RealFileSystem()->RemoveAll(input.directory);
  return made;
}

}  // namespace lockstep::worker::package
