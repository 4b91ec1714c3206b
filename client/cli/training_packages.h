// Packs, checks and uploads the code of a job.
#ifndef LOCKSTEP_CLIENT_CLI_TRAINING_PACKAGES_H_
#define LOCKSTEP_CLIENT_CLI_TRAINING_PACKAGES_H_

#include <functional>
#include <string>
#include <vector>

#include "client/cli/cli.h"
#include "client/package/pack.h"
#include "common/base/status.h"

namespace lockstep::cli {

// The location of a module's file relative to the given folder.
struct ModulePlace {
  // The folder's name if it is part of the module's name: DIR/task.py in a
  // folder "trainer". Empty for DIR/trainer/task.py.
  std::string prefix;
  // The absolute folder that the module's name is relative to: the given folder
  // or its parent.
  std::string root;
};

// Finds `module` ("trainer.task") in `folder`. InvalidArgument if it is in
// neither place or `folder` is a file.
StatusOr<ModulePlace> FindModule(const std::string& folder,
                                 const std::string& module);

// Packs a folder so that `module` can run from it. Errors: those of FindModule
// and PackFolder.
StatusOr<PackedPackage> PackForModule(const std::string& folder,
                                      const std::string& module,
                                      const CliEnvironment& env);

// Returns a note about the requirements in a setup.py of the folder that
// `module` is named from, which are not packed; otherwise "".
std::string NoteOfSetup(const std::string& folder, const std::string& module,
                        const CliEnvironment& env);

// Opens local sdists and wheels unchanged. InvalidArgument if a path has a
// scheme, because nothing is downloaded.
StatusOr<std::vector<PackedPackage>> OpenPackages(
    const std::vector<std::string>& paths, const CliEnvironment& env);

// Uploads missing packages and reports on stderr unless `quiet`. Cancelled
// after Ctrl-C: then nothing is submitted or kept.
Status UploadAll(const Cli& cli, Client* client,
                 const std::vector<PackedPackage>& packages,
                 bool quiet = false);

// Upload progress: "  uploading a.tar.gz: 12.0 MiB of 40.0 MiB, 6.0 MiB/s, 5 s
// left". Without a rate at the start.
std::string UploadText(const std::string& name, int64_t sent, int64_t size,
                       Duration elapsed);

// Returns the answer to `submit`. Packages that the coordinator reports as
// missing, because they expired after the upload, are uploaded once more.
StatusOr<v1::SubmitJobResponse> SubmitUploaded(
    const Cli& cli, Client* client, const std::vector<PackedPackage>& packages,
    const std::function<StatusOr<v1::SubmitJobResponse>()>& submit);

std::vector<v1::Package> PackageMessages(
    const std::vector<PackedPackage>& packages);

}  // namespace lockstep::cli

#endif  // LOCKSTEP_CLIENT_CLI_TRAINING_PACKAGES_H_
