#include "worker/agent/work/output_files.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <deque>
#include <map>
#include <memory>

#include "common/base/fd.h"
#include "worker/agent/core/printable_text.h"

namespace lockstep::worker::agent {
namespace {

constexpr size_t kMaxPath = 4095;
// Read, not only listed: a directory that its owner swaps for a link while we
// look must not lead us out, so that nothing is opened by its whole path.
constexpr int kOpenFlags = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;

struct Entry {
  std::string name;
  bool is_directory = false;
  int64_t bytes = 0;
};

bool IsCheckpointFolder(std::string_view name) {
  constexpr std::string_view kStep = "step-";
  if (!name.starts_with(kStep)) return false;
  name.remove_prefix(kStep.size());
  const size_t dot = name.find(".g");
  const auto is_number = [](std::string_view text) {
    return !text.empty() && text.size() <= 20 &&
           std::all_of(text.begin(), text.end(),
                       [](char c) { return c >= '0' && c <= '9'; });
  };
  return dot != std::string_view::npos && is_number(name.substr(0, dot)) &&
         is_number(name.substr(dot + 2));
}

std::string_view KindOfFile(std::string_view name) {
  constexpr std::pair<std::string_view, std::string_view> kKinds[] = {
      {".keras", "keras"},     {".h5", "keras"},
      {".hdf5", "keras"},      {".safetensors", "safetensors"},
      {".pt", "torch"},        {".pth", "torch"},
      {".onnx", "onnx"},       {".ckpt", "checkpoint"},
      {".index", "checkpoint"}};
  for (const auto& [ending, kind] : kKinds) {
    if (name.size() > ending.size() && name.ends_with(ending)) return kind;
  }
  return "";
}

class Search {
 public:
  Search(const OutputLimits& limits, const std::function<MonoTime()>& now)
      : limits_(limits), now_(now), end_(now() + limits.time) {}

  std::vector<OutputFile> Run(const std::string& root);

 private:
  struct Folder {
    std::string path;  // Below the root; "": the root.
    int depth = 0;
  };
  bool Over() {
    return found_.size() >= limits_.files || seen_ >= limits_.entries ||
           now_() >= end_;
  }
  Fd Open(const std::string& path) const;
  std::vector<Entry> List(const Fd& fd);
  void Look(const Folder& folder);
  // Returns the total size of the files below `path`.
  int64_t BytesBelow(const std::string& path, int depth);
  void Add(const std::string& path, std::string_view kind, int64_t bytes);

  const OutputLimits& limits_;
  const std::function<MonoTime()>& now_;
  const MonoTime end_;
  Fd root_;
  size_t seen_ = 0;
  std::deque<Folder> folders_;
  std::vector<OutputFile> found_;
};

// Part by part, so that no link is followed anywhere below the root.
Fd Search::Open(const std::string& path) const {
  Fd fd(openat(root_.get(), ".", kOpenFlags));
  for (size_t at = 0; fd && at < path.size();) {
    const size_t end = std::min(path.find('/', at), path.size());
    fd = Fd(openat(fd.get(), path.substr(at, end - at).c_str(), kOpenFlags));
    at = end + 1;
  }
  return fd;
}

std::vector<Entry> Search::List(const Fd& fd) {
  std::vector<Entry> entries;
  const int copy = fcntl(fd.get(), F_DUPFD_CLOEXEC, 0);
  if (copy < 0) return entries;
  const std::unique_ptr<DIR, int (*)(DIR*)> dir(fdopendir(copy), closedir);
  if (dir == nullptr) {
    close(copy);
    return entries;
  }
  while (const dirent* at = readdir(dir.get())) {
    if (at->d_name[0] == '.') continue;
    if (++seen_ >= limits_.entries || (seen_ % 64 == 0 && now_() >= end_)) {
      break;
    }
    struct stat info {};
    if (fstatat(fd.get(), at->d_name, &info, AT_SYMLINK_NOFOLLOW) != 0) {
      continue;
    }
    if (!S_ISDIR(info.st_mode) && !S_ISREG(info.st_mode)) continue;
    entries.push_back({at->d_name, S_ISDIR(info.st_mode),
                       std::max<int64_t>(0, info.st_size)});
  }
  std::sort(entries.begin(), entries.end(),
            [](const Entry& a, const Entry& b) { return a.name < b.name; });
  return entries;
}

int64_t Search::BytesBelow(const std::string& path, int depth) {
  const Fd fd = Open(path);
  if (!fd || depth > limits_.depth) return 0;
  int64_t bytes = 0;
  for (const Entry& entry : List(fd)) {
    bytes += entry.is_directory ? BytesBelow(path + "/" + entry.name, depth + 1)
                                : entry.bytes;
  }
  return bytes;
}

void Search::Add(const std::string& path, std::string_view kind,
                 int64_t bytes) {
  const std::string name = path.empty() ? "." : path;
  // Skips names that are not UTF-8; programs do not create them on purpose.
  if (found_.size() >= limits_.files || name.size() > kMaxPath ||
      PrintableText(name, kMaxPath) != name) {
    return;
  }
  found_.push_back({name, std::string(kind), bytes});
}

void Search::Look(const Folder& folder) {
  const Fd fd = Open(folder.path);
  if (!fd) return;
  const std::vector<Entry> entries = List(fd);
  const auto below = [&](const std::string& name) {
    return folder.path.empty() ? name : folder.path + "/" + name;
  };
  int64_t events = 0;
  bool has_events = false;
  for (const Entry& entry : entries) {
    if (entry.is_directory) continue;
    if (entry.name == "saved_model.pb" || entry.name == "saved_model.pbtxt") {
      Add(folder.path, "saved_model", BytesBelow(folder.path, folder.depth));
      return;
    }
    if (entry.name.starts_with("events.out.tfevents.")) {
      has_events = true;
      events += entry.bytes;
      continue;
    }
    const std::string_view kind = KindOfFile(entry.name);
    if (kind.empty()) continue;
    int64_t bytes = entry.bytes;
    if (entry.name.ends_with(".index")) {
      const std::string data =
          entry.name.substr(0, entry.name.size() - 5) + "data-";
      const int64_t alone = bytes;
      for (const Entry& other : entries) {
        if (other.name.starts_with(data)) bytes += other.bytes;
      }
      if (bytes == alone) continue;  // Some other index.
    }
    Add(below(entry.name), kind, bytes);
  }
  if (has_events) Add(folder.path, "tensorboard", events);
  for (const Entry& entry : entries) {
    // Temporary folders that workers write next to the chief's.
    if (!entry.is_directory || entry.name.starts_with("workertemp_")) continue;
    if (IsCheckpointFolder(entry.name)) {
      Add(below(entry.name), "checkpoint",
          BytesBelow(below(entry.name), folder.depth + 1));
    } else if (folder.depth < limits_.depth) {
      folders_.push_back({below(entry.name), folder.depth + 1});
    }
  }
}

std::vector<OutputFile> Search::Run(const std::string& root) {
  root_ = Fd(open(root.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!root_) return {};
  folders_.push_back({"", 0});
  while (!folders_.empty() && !Over()) {
    const Folder folder = std::move(folders_.front());
    folders_.pop_front();
    Look(folder);
  }
  std::sort(
      found_.begin(), found_.end(),
      [](const OutputFile& a, const OutputFile& b) { return a.path < b.path; });
  return std::move(found_);
}

}  // namespace

std::vector<OutputFile> FindOutputFiles(const std::string& directory,
                                        const OutputLimits& limits,
                                        const std::function<MonoTime()>& now) {
  if (directory.empty() || directory[0] != '/') return {};
  return Search(limits, now).Run(directory);
}

}  // namespace lockstep::worker::agent
