#include "client/cli/pki_dir.h"

#include "common/base/file.h"
#include "common/pki/ca.h"

namespace lockstep::cli {

void AddPkiDirOption(Command* command, std::string* dir) {
  command->Add("--dir DIR", dir,
               "The CA's directory (default: ~/.config/lockstep/pki)");
}

StatusOr<std::string> PkiDir(const std::string& dir,
                             const CliEnvironment& env) {
  if (!dir.empty()) return JoinPath(env.working_directory, dir);
  const std::string config = env.Variable("XDG_CONFIG_HOME");
  if (!config.empty() && config[0] == '/') return config + "/lockstep/pki";
  const std::string home = env.Variable("HOME");
  if (home.empty()) {
    return FailedPrecondition(
        "neither HOME nor XDG_CONFIG_HOME is set: give --dir DIR");
  }
  return home + "/.config/lockstep/pki";
}

std::string CaDirIn(const std::string& pki_dir) { return pki_dir + "/ca"; }

StatusOr<WallTime> IssueCertificate(const std::string& pki_dir,
                                    const std::string& kind,
                                    const std::string& name,
                                    const std::string& role,
                                    const std::string& output, WallTime now) {
  const auto ca =
      pki::CertificateAuthority::Load(RealFileSystem(), CaDirIn(pki_dir), now);
  if (ca.status().code() == StatusCode::kNotFound) {
    return NotFound("there is no CA in {}; `lockstep init` makes one",
                    CaDirIn(pki_dir));
  }
  if (!ca.ok()) return ca.status();
  pki::LeafRequest request;
  if (kind == "worker") {
    request.identity = pki::WorkerIdentity(ca->cluster(), name);
  } else if (kind == "coordinator") {
    request.identity = pki::CoordinatorIdentity(ca->cluster(), name);
    request.names = {"localhost", "127.0.0.1"};
  } else {
    LOCKSTEP_ASSIGN_OR_RETURN(const pki::UserRole user_role,
                              pki::ParseUserRole(role));
    request.identity = UserIdentity(ca->cluster(), user_role, name);
  }
  const size_t slash = output.rfind('/');
  if (slash != output.npos && slash > 0) {
    LOCKSTEP_RETURN_IF_ERROR(
        RealFileSystem()->MakeDirs(output.substr(0, slash), 0700));
  }
  LOCKSTEP_ASSIGN_OR_RETURN(
      const pki::CredentialPaths paths,
      IssueInto(RealFileSystem(), output, *ca, request, now));
  // Reads the stored file, so that the report matches it.
  LOCKSTEP_ASSIGN_OR_RETURN(const pki::Credentials credentials,
                            LoadCredentials(RealFileSystem(), paths, now));
  return credentials.not_after;
}

}  // namespace lockstep::cli
