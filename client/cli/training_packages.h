// The code that a job brings: packed, checked and uploaded.
#ifndef LOCKSTEP_CLIENT_CLI_TRAINING_PACKAGES_H_
#define LOCKSTEP_CLIENT_CLI_TRAINING_PACKAGES_H_

#include <functional>
#include <string>
#include <vector>

#include "client/cli/cli.h"
#include "client/package/pack.h"
#include "common/base/status.h"

namespace lockstep {

// Where a module's file is, as seen from the folder that is given for it.
struct ModulePlace {
  // The folder's name where that is part of the module's: DIR/task.py of a
  // folder "trainer"; empty: DIR/trainer/task.py.
  std::string prefix;
  // Of which the module's name is a path: the folder, or its parent; absolute.
  std::string root;
};

// Of `module` ("trainer.task") in `folder`. InvalidArgument: it is in neither
// place, or `folder` is a file.
StatusOr<ModulePlace> FindModule(const std::string& folder,
                                 const std::string& module);

// A folder as a package from which `module` can be run.
// Errors: those of FindModule and PackFolder.
StatusOr<PackedPackage> PackForModule(const std::string& folder,
                                      const std::string& module,
                                      const CliEnvironment& env);

// What a setup.py in the folder that `module` is named from requires, and what
// a folder does not bring: a sentence for the user; "": nothing.
std::string NoteOfSetup(const std::string& folder, const std::string& module,
                        const CliEnvironment& env);

// sdists and wheels of this machine, as they are. InvalidArgument: one has a
// scheme, from which nothing is fetched here.
StatusOr<std::vector<PackedPackage>> OpenPackages(
    const std::vector<std::string>& paths, const CliEnvironment& env);

// Sends those that are not there yet; unless `quiet`, with a line on stderr.
// Cancelled after Ctrl-C: nothing is submitted then, and nothing kept.
Status UploadAll(const Cli& cli, Client* client,
                 const std::vector<PackedPackage>& packages,
                 bool quiet = false);

// How far an upload is: "  uploading a.tar.gz: 12.0 MiB of 40.0 MiB, 6.0 MiB/s,
// 5 s left". Without rate where it is too early to tell.
std::string UploadText(const std::string& name, int64_t sent, int64_t size,
                       Duration elapsed);

// What `submit` answers. Packages that went between their upload and the job,
// of which the coordinator says that they are missing, are sent once more.
StatusOr<v1::SubmitJobResponse> SubmitUploaded(
    const Cli& cli, Client* client, const std::vector<PackedPackage>& packages,
    const std::function<StatusOr<v1::SubmitJobResponse>()>& submit);

std::vector<v1::Package> PackageMessages(
    const std::vector<PackedPackage>& packages);

}  // namespace lockstep

#endif  // LOCKSTEP_CLIENT_CLI_TRAINING_PACKAGES_H_
