#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <ostream>

#include "client/cli/cli.h"
#include "client/cli/pki_dir.h"
#include "common/base/file.h"
#include "common/pki/ca.h"

namespace lockstep {
namespace {

struct Options {
  std::string dir;
  std::string cluster = "lockstep";
};

StatusOr<int> Run(const Cli& cli, const Options& options) {
  CliEnvironment* const env = cli.env;
  LOCKSTEP_ASSIGN_OR_RETURN(const std::string dir, PkiDir(options.dir, *env));
  const WallTime now = env->clock->Now().wall;
  LOCKSTEP_RETURN_IF_ERROR(RealFileSystem()->MakeDirs(dir, 0700));
  LOCKSTEP_ASSIGN_OR_RETURN(
      const CertificateAuthority ca,
      CertificateAuthority::CreateIn(RealFileSystem(), CaDirIn(dir),
                                     options.cluster, now));
  LOCKSTEP_ASSIGN_OR_RETURN(const WallTime end,
                            IssueCertificate(dir, "coordinator", "coordinator",
                                             "", dir + "/coordinator", now));
  *env->err << fmt::format(
      "made the CA of cluster {0} in {1}, valid until {3}\n"
      "its key {1}/ca.key lets anybody be anybody: keep it here\n"
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

void AddInit(CLI::App* parent, Cli* cli) {
  auto options = std::make_shared<Options>();
  CLI::App* const app = AddCommand(
      parent, "init",
      "Make a cluster's certificate authority and the coordinator's "
      "certificate",
      "  lockstep init --cluster research\n"
      "\nThe CA is valid for 10 years, certificates for 1 year. It never"
      "\nreplaces a CA that is there.");
  AddPkiDirOption(app, &options->dir);
  app->add_option("--cluster", options->cluster,
                  "The cluster's name, part of every certificate")
      ->capture_default_str();
  app->callback([=] { cli->run = [=] { return Run(*cli, *options); }; });
}

}  // namespace lockstep
