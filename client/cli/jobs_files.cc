#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <ostream>

#include "client/cli/cli.h"
#include "client/cli/errors.h"
#include "client/cli/find.h"
#include "client/cli/job_view.h"
#include "client/cli/listing.h"
#include "client/cli/work_place.h"
#include "common/base/utf8.h"
#include "common/model/resources.h"

namespace lockstep::cli {
namespace {

struct FilesFlags {
  std::string name;
  std::string place;
};

// One folder of one task.
struct Folder {
  int32_t rank = 0;
  std::string task;
  v1::ListFilesResponse files;
};

Table FilesTable(const std::vector<Folder>& folders) {
  Table table{{"RANK", "TASK", "PATH", "SIZE", "MODIFIED"}, {}};
  for (const Folder& folder : folders) {
    for (const v1::WorkFile& file : folder.files.files()) {
      table.rows.push_back(
          {std::to_string(folder.rank), folder.task,
           Printable(file.path()) + (file.directory() ? "/" : ""),
           FormatBytes(file.bytes()),
           TimeText(file.has_modify_time(), file.modify_time())});
    }
  }
  return table;
}

// Returns the first rank of each task, because its ranks share a directory.
std::vector<Folder> FoldersOf(const v1::Job& job) {
  std::vector<Folder> folders;
  for (const v1::TaskStatus& task : job.tasks()) {
    if (task.ranks().empty()) continue;
    folders.push_back({task.ranks(0).rank(), TaskText(task), {}});
  }
  return folders;
}

std::string TaskOfRank(const v1::Job& job, int32_t rank) {
  for (const v1::TaskStatus& task : job.tasks()) {
    for (const v1::RankStatus& status : task.ranks()) {
      if (status.rank() == rank) return TaskText(task);
    }
  }
  return "";
}

Status WriteFolders(const Cli& cli, const std::vector<Folder>& folders,
                    bool one) {
  Listing listing;
  std::string json;
  for (const Folder& folder : folders) {
    std::string line = ToJsonLine(folder.files);
    line.insert(1, fmt::format("\"rank\":{},", folder.rank));
    listing.json_lines.push_back(line);
    line.pop_back();
    json += (json.empty() ? "" : ",") + line;
    for (const v1::WorkFile& file : folder.files.files()) {
      listing.names.push_back(
          fmt::format("{}/{}", folder.rank, Printable(file.path())));
    }
  }
  listing.json = "[" + json + "]\n";
  if (one) listing.all = &folders[0].files;
  listing.table = [&](bool, const Style&) { return FilesTable(folders); };
  LOCKSTEP_RETURN_IF_ERROR(WriteListing(cli, listing));
  for (const Folder& folder : folders) {
    if (!folder.files.truncated()) continue;
    *cli.env->err << fmt::format(
        "note: {} has more files than are listed: name a folder of it\n",
        folder.task);
  }
  return OkStatus();
}

StatusOr<int> RunFiles(const Cli& cli, const FilesFlags& options) {
  std::optional<WorkPlace> place;
  if (!options.place.empty()) {
    LOCKSTEP_ASSIGN_OR_RETURN(place, ParseWorkPlace(options.place));
  }
  LOCKSTEP_ASSIGN_OR_RETURN(const auto client, cli.Connect());
  LOCKSTEP_ASSIGN_OR_RETURN(const std::string name,
                            FindJob(client.get(), options.name));
  LOCKSTEP_ASSIGN_OR_RETURN(const v1::Job job, client->GetJob(name));
  std::vector<Folder> folders;
  if (place) {
    folders = {{place->rank, TaskOfRank(job, place->rank), {}}};
    LOCKSTEP_ASSIGN_OR_RETURN(
        folders[0].files, client->ListFiles(name, place->rank, place->path));
    LOCKSTEP_RETURN_IF_ERROR(WriteFolders(cli, folders, true));
    return 0;
  }
  int code = 0;
  for (Folder& folder : FoldersOf(job)) {
    auto files = client->ListFiles(name, folder.rank, "");
    // It was empty and was removed at the job's end.
    if (files.status().code() == StatusCode::kNotFound) continue;
    if (!files.ok()) {
      // If there is no directory at all, one error replaces the rows.
      if (files.status().code() == StatusCode::kFailedPrecondition ||
          files.status().code() == StatusCode::kPermissionDenied) {
        return files.status();
      }
      *cli.env->err << ErrorLine(Annotate(files.status(), folder.task)) << "\n";
      code = std::max(code, ExitCodeOf(files.status()));
      continue;
    }
    folder.files = *std::move(files);
    folders.push_back(std::move(folder));
  }
  LOCKSTEP_RETURN_IF_ERROR(WriteFolders(cli, folders, false));
  return code;
}

}  // namespace

StatusOr<WorkPlace> ParseWorkPlace(const std::string& text) {
  const size_t slash = text.find('/');
  const std::string rank = text.substr(0, slash);
  WorkPlace place;
  const bool digits = !rank.empty() && rank.size() <= 6 &&
                      std::all_of(rank.begin(), rank.end(),
                                  [](char c) { return c >= '0' && c <= '9'; });
  if (!digits) {
    return InvalidArgument(
        "\"{}\" does not begin with a rank: give RANK or RANK/PATH, as "
        "0/snapshot.pt",
        Printable(text));
  }
  place.rank = std::stoi(rank);
  if (slash != std::string::npos) place.path = text.substr(slash + 1);
  while (place.path.ends_with('/')) place.path.pop_back();
  if (!IsUtf8(place.path)) {
    return InvalidArgument(
        "the path \"{}\" is not UTF-8, as the "
        "API requires",
        Printable(place.path));
  }
  return place;
}

Command JobsFilesCommand(Cli* cli) {
  const auto options = std::make_shared<FilesFlags>();
  Command command = LeafCommand(
      "files", "List files of tasks' working directories",
      "  lockstep jobs files fashion\n"
      "  lockstep jobs files fashion 1\n"
      "  lockstep jobs files fashion 0/logs\n\n"
      "A job without a working directory gets one for each task. It stays\n"
      "on the task's node until the job's logs are removed; `lockstep jobs\n"
      "cp` fetches a file. For the job's owner and admins.");
  AddJobArgument(&command, &options->name);
  command.Add(
      "place RANK[/PATH]", &options->place,
      "A rank, and optionally a folder in its directory (default: all tasks)");
  AddListOptions(&command, cli);
  AddConnectionOptions(&command, cli);
  command.run = [=] { return RunFiles(*cli, *options); };
  return command;
}

}  // namespace lockstep::cli
