#include "server/store_commands.h"

#include <fmt/format.h>

#include <ostream>
#include <string>
#include <string_view>

#include "common/base/file.h"
#include "common/cli/command.h"
#include "server/store/commit_mark.h"
#include "server/store/sqlite_store.h"
#include "server/store_file_name.h"

namespace lockstep::server {

namespace {

std::string StoreIn(const std::string& dir) {
  return JoinPath(dir, kStoreFile);
}

// "3 jobs and 2 nodes at version 12 of epoch 3, history 0123...".
std::string Text(const StoreReport& report) {
  return fmt::format("{} jobs and {} nodes at {}, history {}", report.jobs,
                     report.nodes, Describe(report.point),
                     report.point.history);
}

Status Verify(const std::string& target, std::ostream& out) {
  // A backup is a single file without a marker.
  const auto info = RealFileSystem()->Stat(target);
  if (!info.ok()) return info.status();
  const bool directory = info->is_directory;
  LOCKSTEP_ASSIGN_OR_RETURN(
      const StoreReport report,
      VerifySqliteStore(directory ? StoreIn(target) : target, directory));
  out << fmt::format("{}: whole: {}\n", target, Text(report));
  return OkStatus();
}

Status Restore(const std::string& file, const std::string& dir,
               std::ostream& out) {
  LOCKSTEP_RETURN_IF_ERROR(RealFileSystem()->MakeDirs(dir, 0700));
  LOCKSTEP_ASSIGN_OR_RETURN(const StoreReport report,
                            RestoreSqliteStore(file, StoreIn(dir)));
  out << fmt::format(
      "{}: restored: {}. The previous store was kept as {}.replaced-N. "
      "Ranks that this store does not know are left running: see "
      "`lockstep nodes describe` when the coordinator runs\n",
      dir, Text(report), kStoreFile);
  return OkStatus();
}

Status AcceptLoss(const std::string& dir, std::ostream& out) {
  LOCKSTEP_ASSIGN_OR_RETURN(const StoreReport report,
                            AcceptLossOfSqliteStore(StoreIn(dir)));
  out << fmt::format(
      "{}: the coordinator continues with {}. Ranks that this store "
      "does not know are left running: see `lockstep nodes describe` when the "
      "coordinator runs\n",
      dir, Text(report));
  return OkStatus();
}

}  // namespace

bool RunStoreCommand(int argc, char** argv, std::ostream& out,
                     std::ostream& err, int* exit_code) {
  const std::string_view name = argc > 1 ? argv[1] : "";
  if (name != "verify" && name != "restore" && name != "accept-loss") {
    return false;
  }
  std::string dir, file;
  Command verify(
      "verify",
      "Check the whole store in DIR, or a backup: checksums of pages, "
      "digests of tables, records, and the mark of answered commits. Changes "
      "nothing; a coordinator may run on it");
  verify.Add("DIR", &dir, "State directory, or a backup", Required);
  Command restore("restore",
                  "Replace the store in DIR by a backup while no coordinator "
                  "runs. The previous store is kept next to it");
  restore.Add("FILE", &file, "A backup made by --backup-to or --backup-dir",
              Required);
  restore.Add("DIR", &dir, "State directory", Required);
  Command accept("accept-loss",
                 "Accept the store in DIR, although it lacks commits that were "
                 "answered or nodes have obeyed a later coordinator");
  accept.Add("DIR", &dir, "State directory", Required);
  Command store("lockstep-coordinator", "The store of a lockstep coordinator");
  store.children = {verify, restore, accept};
  const ParsedCommand parsed = Parse(store, argc, argv);
  if (!parsed.command) {
    *exit_code = parsed.Print("", kRunWithHelp, out, err);
    return true;
  }
  const Status status = name == "verify"    ? Verify(dir, out)
                        : name == "restore" ? Restore(file, dir, out)
                                            : AcceptLoss(dir, out);
  *exit_code = status.ok() ? 0 : 1;
  if (!status.ok()) {
    err << "lockstep-coordinator " << name << ": " << Message(status) << "\n";
  }
  return true;
}

}  // namespace lockstep::server
