#include "worker/checkpoint/memory_file_system.h"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "worker/checkpoint/layout.h"

namespace lockstep::worker::checkpoint {

class MemoryFile final : public WritableFile {
 public:
  MemoryFile(MemoryFileSystem* fs, std::string path,
             MemoryFileSystem::NodePtr node)
      : fs_(fs), path_(std::move(path)), node_(std::move(node)) {}

  Status Append(std::string_view data) override {
    MutexLock lock(&fs_->mu_);
    LOCKSTEP_RETURN_IF_ERROR(fs_->Count("writing " + path_));
    node_->data += data;
    return OkStatus();
  }
  Status Sync() override {
    MutexLock lock(&fs_->mu_);
    const Status counted = fs_->Count("syncing " + path_);
    if (!counted.ok()) {
      node_->sync_failed = true;
      return counted;
    }
    if (fs_->CountSync(path_) && !node_->sync_failed) {
      node_->durable_data = node_->data;
    }
    return OkStatus();
  }
  Status Close() override { return OkStatus(); }

 private:
  MemoryFileSystem* const fs_;
  const std::string path_;
  const MemoryFileSystem::NodePtr node_;
};

namespace {

class MemoryReader final : public ReadableFile {
 public:
  explicit MemoryReader(std::string data) : data_(std::move(data)) {}
  StatusOr<size_t> ReadAt(uint64_t offset, void* buffer, size_t size) override {
    if (offset >= data_.size()) return size_t{0};
    const size_t n = std::min<size_t>(size, data_.size() - offset);
    std::memcpy(buffer, data_.data() + offset, n);
    return n;
  }

 private:
  const std::string data_;
};

Status Missing(const std::string& path) { return ErrnoStatus(ENOENT, path); }

}  // namespace

MemoryFileSystem::MemoryFileSystem() : root_(std::make_shared<Node>()) {
  root_->is_directory = true;
}

int MemoryFileSystem::operations() const {
  MutexLock lock(&mu_);
  return operations_;
}

std::vector<std::string> MemoryFileSystem::syncs() const {
  MutexLock lock(&mu_);
  return syncs_;
}

void MemoryFileSystem::SkipSync(int index) {
  MutexLock lock(&mu_);
  skip_sync_ = index;
}

bool MemoryFileSystem::CountSync(std::string what) {
  syncs_.push_back(std::move(what));
  return static_cast<int>(syncs_.size()) - 1 != skip_sync_;
}

void MemoryFileSystem::FailAt(int at, bool and_after, int error) {
  MutexLock lock(&mu_);
  fail_error_ = error;
  fail_at_ = at;
  fail_after_ = and_after;
}

void MemoryFileSystem::Forget(Node* node, std::mt19937* random) {
  const bool keep = random != nullptr && (*random)() % 2 == 0;
  if (keep) {
    if (!node->sync_failed) node->durable_data = node->data;
    node->durable_names = node->names;
  }
  node->data = node->durable_data;
  node->names = node->durable_names;
  for (auto& [name, child] : node->names) Forget(child.get(), random);
}

void MemoryFileSystem::PowerLoss() { PowerLoss(nullptr); }

void MemoryFileSystem::PowerLoss(std::mt19937* random) {
  MutexLock lock(&mu_);
  Forget(root_.get(), random);
}

Status MemoryFileSystem::Count(std::string_view what) {
  ++operations_;
  if (fail_at_ > 0 &&
      (operations_ == fail_at_ || (fail_after_ && operations_ > fail_at_))) {
    return ErrnoStatus(fail_error_, what);
  }
  return OkStatus();
}

MemoryFileSystem::NodePtr MemoryFileSystem::Find(const std::string& path) {
  NodePtr node = root_;
  for (size_t begin = 0; begin < path.size() && node != nullptr;) {
    size_t end = path.find('/', begin);
    if (end == std::string::npos) end = path.size();
    if (end > begin) {
      const auto it = node->names.find(path.substr(begin, end - begin));
      node = it == node->names.end() ? nullptr : it->second;
    }
    begin = end + 1;
  }
  return node;
}

StatusOr<MemoryFileSystem::NodePtr> MemoryFileSystem::Parent(
    const std::string& path) {
  NodePtr parent = Find(ParentDir(path));
  if (parent == nullptr) return Missing(path);
  if (!parent->is_directory) return ErrnoStatus(ENOTDIR, path);
  return parent;
}

StatusOr<std::unique_ptr<WritableFile>> MemoryFileSystem::Create(
    const std::string& path, mode_t) {
  MutexLock lock(&mu_);
  LOCKSTEP_RETURN_IF_ERROR(Count("creating " + path));
  LOCKSTEP_ASSIGN_OR_RETURN(NodePtr parent, Parent(path));
  NodePtr& node = parent->names[BaseName(path)];
  if (node == nullptr) node = std::make_shared<Node>();
  if (node->is_directory) return ErrnoStatus(EISDIR, path);
  node->data.clear();
  return std::make_unique<MemoryFile>(this, path, node);
}

StatusOr<std::unique_ptr<WritableFile>> MemoryFileSystem::OpenAppend(
    const std::string& path, mode_t) {
  MutexLock lock(&mu_);
  LOCKSTEP_RETURN_IF_ERROR(Count("opening " + path));
  LOCKSTEP_ASSIGN_OR_RETURN(NodePtr parent, Parent(path));
  NodePtr& node = parent->names[BaseName(path)];
  if (node == nullptr) node = std::make_shared<Node>();
  if (node->is_directory) return ErrnoStatus(EISDIR, path);
  return std::make_unique<MemoryFile>(this, path, node);
}

void MemoryFileSystem::FailReads(const std::string& part, int error) {
  MutexLock lock(&mu_);
  fail_reads_ = part;
  fail_reads_error_ = error;
}

StatusOr<std::string> MemoryFileSystem::Read(const std::string& path,
                                             uint64_t limit) {
  MutexLock lock(&mu_);
  if (fail_reads_error_ != 0 && path.find(fail_reads_) != std::string::npos) {
    return ErrnoStatus(fail_reads_error_, path);
  }
  const NodePtr node = Find(path);
  if (node == nullptr) return Missing(path);
  if (node->is_directory) return ErrnoStatus(EISDIR, path);
  if (node->data.size() > limit) return ResourceExhausted("{}", path);
  return node->data;
}

StatusOr<std::unique_ptr<ReadableFile>> MemoryFileSystem::OpenRead(
    const std::string& path) {
  LOCKSTEP_ASSIGN_OR_RETURN(std::string data, Read(path, UINT64_MAX));
  return std::make_unique<MemoryReader>(std::move(data));
}

StatusOr<FileInfo> MemoryFileSystem::Stat(const std::string& path) {
  MutexLock lock(&mu_);
  const NodePtr node = Find(path);
  if (node == nullptr) return Missing(path);
  FileInfo info;
  info.is_directory = node->is_directory;
  info.size = node->data.size();
  return info;
}

StatusOr<std::vector<std::string>> MemoryFileSystem::List(
    const std::string& path) {
  MutexLock lock(&mu_);
  const NodePtr node = Find(path);
  if (node == nullptr) return Missing(path);
  std::vector<std::string> names;
  for (const auto& [name, child] : node->names) names.push_back(name);
  return names;
}

Status MemoryFileSystem::MakeDirs(const std::string& path, mode_t) {
  MutexLock lock(&mu_);
  for (size_t slash = 0; slash != std::string::npos;) {
    slash = path.find('/', slash + 1);
    const std::string part = path.substr(0, slash);
    if (const NodePtr node = Find(part)) {
      if (!node->is_directory) return ErrnoStatus(ENOTDIR, part);
      continue;
    }
    LOCKSTEP_RETURN_IF_ERROR(Count("making directory " + part));
    LOCKSTEP_ASSIGN_OR_RETURN(NodePtr parent, Parent(part));
    NodePtr& made = parent->names[BaseName(part)];
    made = std::make_shared<Node>();
    made->is_directory = true;
  }
  return OkStatus();
}

Status MemoryFileSystem::Rename(const std::string& from,
                                const std::string& to) {
  MutexLock lock(&mu_);
  LOCKSTEP_RETURN_IF_ERROR(Count("renaming " + from + " to " + to));
  const NodePtr node = Find(from);
  if (node == nullptr) return Missing(from);
  const NodePtr target = Find(to);
  if (target != nullptr && !target->names.empty()) {
    return ErrnoStatus(ENOTEMPTY, to);
  }
  LOCKSTEP_ASSIGN_OR_RETURN(NodePtr parent, Parent(to));
  parent->names[BaseName(to)] = node;
  Find(ParentDir(from))->names.erase(BaseName(from));
  return OkStatus();
}

Status MemoryFileSystem::Remove(const std::string& path) {
  MutexLock lock(&mu_);
  LOCKSTEP_RETURN_IF_ERROR(Count("removing " + path));
  const NodePtr node = Find(path);
  if (node == nullptr) return Missing(path);
  if (!node->names.empty()) return ErrnoStatus(ENOTEMPTY, path);
  Find(ParentDir(path))->names.erase(BaseName(path));
  return OkStatus();
}

Status MemoryFileSystem::RemoveAll(const std::string& path) {
  std::vector<std::string> names;
  {
    MutexLock lock(&mu_);
    const NodePtr node = Find(path);
    if (node == nullptr) return OkStatus();
    for (const auto& [name, child] : node->names) names.push_back(name);
  }
  for (const std::string& name : names) {
    LOCKSTEP_RETURN_IF_ERROR(RemoveAll(JoinPath(path, name)));
  }
  return Remove(path);
}

Status MemoryFileSystem::SyncDir(const std::string& path) {
  MutexLock lock(&mu_);
  LOCKSTEP_RETURN_IF_ERROR(Count("syncing directory " + path));
  const NodePtr node = Find(path);
  if (node == nullptr) return Missing(path);
  if (CountSync(path + "/")) node->durable_names = node->names;
  return OkStatus();
}

}  // namespace lockstep::worker::checkpoint
