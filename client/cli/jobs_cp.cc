#include <errno.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <stdio.h>

#include <memory>
#include <ostream>

#include "client/cli/cli.h"
#include "client/cli/find.h"
#include "client/cli/work_place.h"
#include "common/base/file.h"
#include "common/base/random.h"
#include "common/model/resources.h"

namespace lockstep::cli {
namespace {

struct CopyFlags {
  std::string source;
  std::string destination = ".";
  bool force = false;
};

struct Source {
  std::string job;
  WorkPlace place;
};

StatusOr<Source> ParseSource(const std::string& text) {
  const size_t colon = text.find(':');
  if (colon == 0 || colon == std::string::npos) {
    return InvalidArgument(
        "\"{}\" names no job: give JOB:RANK/PATH, as "
        "fashion:0/snapshot.pt",
        Printable(text));
  }
  Source source;
  source.job = text.substr(0, colon);
  LOCKSTEP_ASSIGN_OR_RETURN(source.place,
                            ParseWorkPlace(text.substr(colon + 1)));
  if (source.place.path.empty()) {
    return InvalidArgument(
        "\"{}\" names no file: give JOB:RANK/PATH; `lockstep jobs files` lists "
        "them",
        Printable(text));
  }
  return source;
}

Status AlreadyThere(const std::string& path) {
  return AlreadyExists("{} exists: give --force to replace it",
                       Printable(path));
}

// A folder gets a file of the same name.
StatusOr<std::string> Target(const Cli& cli, const CopyFlags& options,
                             const WorkPlace& place) {
  FileSystem* const files = RealFileSystem();
  std::string path = JoinPath(cli.env->working_directory, options.destination);
  const auto info = files->Stat(path);
  if (options.destination.ends_with('/') && !info.ok()) return info.status();
  if (info.ok() && info->is_directory) {
    path = JoinPath(path, place.path.substr(place.path.rfind('/') + 1));
  }
  if (!options.force && files->Exists(path)) return AlreadyThere(path);
  return path;
}

// Somebody may have made it meanwhile.
Status Publish(const std::string& temporary, const std::string& path,
               bool force) {
  if (force) return RealFileSystem()->Rename(temporary, path);
  if (renameat2(AT_FDCWD, temporary.c_str(), AT_FDCWD, path.c_str(),
                RENAME_NOREPLACE) == 0) {
    return OkStatus();
  }
  if (errno == EEXIST) return AlreadyThere(path);
  if (errno != EINVAL && errno != ENOSYS) {
    return ErrnoStatus(errno, "making " + path);
  }
  if (RealFileSystem()->Exists(path)) return AlreadyThere(path);
  return RealFileSystem()->Rename(temporary, path);
}

Status Fetch(const Cli& cli, Client* client, const Source& source,
             const std::string& path, bool force, int64_t* size) {
  FileSystem* const files = RealFileSystem();
  const std::string temporary = path + "." + RandomHex(4) + ".part";
  LOCKSTEP_ASSIGN_OR_RETURN(auto file, files->Create(temporary, 0644));
  Status status =
      client->ReadFile(source.job, source.place.rank, source.place.path,
                       [&](int64_t whole, std::string_view data) {
                         *size = whole;
                         if (cli.env->interrupted && cli.env->interrupted()) {
                           return Cancelled("interrupted: {} was not written",
                                            Printable(source.place.path));
                         }
                         return file->Append(data);
                       });
  if (status.ok()) status = file->Sync();
  if (status.ok()) status = file->Close();
  if (status.ok()) status = Publish(temporary, path, force);
  if (!status.ok()) (void)files->Remove(temporary);
  return status;
}

StatusOr<int> RunCopy(const Cli& cli, const CopyFlags& options) {
  LOCKSTEP_ASSIGN_OR_RETURN(Source source, ParseSource(options.source));
  LOCKSTEP_ASSIGN_OR_RETURN(const std::string path,
                            Target(cli, options, source.place));
  LOCKSTEP_ASSIGN_OR_RETURN(const auto client, cli.Connect());
  LOCKSTEP_ASSIGN_OR_RETURN(source.job, FindJob(client.get(), source.job));
  int64_t size = 0;
  LOCKSTEP_RETURN_IF_ERROR(
      Fetch(cli, client.get(), source, path, options.force, &size));
  *cli.env->err << fmt::format("{}: {}\n", Printable(path), FormatBytes(size));
  return 0;
}

}  // namespace

Command JobsCpCommand(Cli* cli) {
  const auto options = std::make_shared<CopyFlags>();
  Command command = LeafCommand(
      "cp", "Fetch a file of a task's working directory",
      "  lockstep jobs cp fashion:0/snapshot.pt\n"
      "  lockstep jobs cp fashion:1/logs/events.1 events --force\n\n"
      "The file appears under its name only when it is complete. A file\n"
      "that the program is still writing may be out of date, or fail if it\n"
      "shrinks. `lockstep jobs files` lists the files.");
  command.Add("source SOURCE", &options->source, "JOB:RANK/PATH", Required);
  command.Add("destination FILE", &options->destination,
              "A file or an existing folder", ShowDefault);
  command.Add("--force", &options->force, "Replace an existing file");
  AddConnectionOptions(&command, cli);
  command.run = [=] { return RunCopy(*cli, *options); };
  return command;
}

}  // namespace lockstep::cli
