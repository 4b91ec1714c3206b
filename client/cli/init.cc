#include <fmt/format.h>

#include <memory>
#include <ostream>

#include "client/cli/cli.h"
#include "client/cli/pki_dir.h"
#include "common/base/file.h"
#include "common/pki/ca.h"

namespace lockstep::cli {
namespace {

struct InitFlags {
  std::string dir;
  std::string cluster = "lockstep";
};

StatusOr<int> RunInit(const Cli& cli, const InitFlags& options) {
  CliEnvironment* const env = cli.env;
  LOCKSTEP_ASSIGN_OR_RETURN(const std::string dir, PkiDir(options.dir, *env));
  const WallTime now = env->clock->Now().wall;
  LOCKSTEP_RETURN_IF_ERROR(RealFileSystem()->MakeDirs(dir, 0700));
  LOCKSTEP_ASSIGN_OR_RETURN(
      const pki::CertificateAuthority ca,
      pki::CertificateAuthority::CreateIn(RealFileSystem(), CaDirIn(dir),
                                          options.cluster, now));
  LOCKSTEP_ASSIGN_OR_RETURN(const WallTime end,
                            IssueCertificate(dir, "coordinator", "coordinator",
                                             "", dir + "/coordinator", now));
  *env->err << fmt::format(
      "made the CA of cluster {0} in {1}, valid until {3}\n"
      "its key {1}/ca.key can issue any identity: keep it secret\n"
      "next:\n"
      "  copy {2}/coordinator (valid until {4}) to the coordinator's host and "
      "start\n"
      "    lockstep-coordinator --cluster {0} --ca ca.crt --cert tls.crt "
      "--key tls.key ...\n"
      "  lockstep cert issue worker HOST       for each host\n"
      "  lockstep cert issue user NAME         for each user\n",
      options.cluster, CaDirIn(dir), dir,
      FormatWallTime(ca.not_after()).substr(0, 10),
      FormatWallTime(end).substr(0, 10));
  *env->out << dir << "\n";
  return 0;
}

}  // namespace

Command InitCommand(Cli* cli) {
  const auto options = std::make_shared<InitFlags>();
  Command command = LeafCommand(
      "init",
      "Make a cluster's certificate authority and the coordinator's "
      "certificate",
      "  lockstep init --cluster research\n\n"
      "The CA is valid for 10 years, certificates for 1 year. It never\n"
      "replaces an existing CA.");
  AddPkiDirOption(&command, &options->dir);
  command.Add("--cluster", &options->cluster,
              "The cluster's name, part of every certificate", ShowDefault);
  command.run = [=] { return RunInit(*cli, *options); };
  return command;
}

}  // namespace lockstep::cli
