#include "worker/data/shard_writer.h"

#include <algorithm>
#include <utility>

#include "worker/data/shards.h"

namespace lockstep::worker::data {

StatusOr<std::unique_ptr<ShardWriter>> ShardWriter::Create(
    FileSystem* fs, const ShardOptions& options) {
  LOCKSTEP_RETURN_IF_ERROR(CheckDatasetName(options.name));
  if (options.records_per_shard == 0) {
    return InvalidArgument("a shard holds at least 1 record");
  }
  LOCKSTEP_RETURN_IF_ERROR(fs->MakeDirs(options.directory));
  LOCKSTEP_ASSIGN_OR_RETURN(const auto names, fs->List(options.directory));
  std::vector<std::string> old_shards;
  for (const std::string& name : names) {
    const std::optional<ShardName> shard = ParseShardName(name);
    if (!shard || shard->name != options.name) continue;
    const std::string path = JoinPath(options.directory, name);
    if (!options.overwrite) {
      return AlreadyExists(
          "{} already exists: choose another name or directory, or replace all "
          "shards of {} with --overwrite",
          path, options.name);
    }
    old_shards.push_back(path);
  }
  std::unique_ptr<ShardWriter> writer(
      new ShardWriter(fs, options, std::move(old_shards)));
  LOCKSTEP_RETURN_IF_ERROR(fs->RemoveAll(writer->temporary_));
  LOCKSTEP_RETURN_IF_ERROR(fs->MakeDirs(writer->temporary_));
  return writer;
}

ShardWriter::ShardWriter(FileSystem* fs, const ShardOptions& options,
                         std::vector<std::string> old_shards)
    : fs_(fs),
      options_(options),
      old_shards_(std::move(old_shards)),
      temporary_(JoinPath(options.directory, "." + options.name + ".packing")) {
}

ShardWriter::~ShardWriter() {
  current_.reset();
  // What stays behind on failure is hidden, and swept by the next packing.
  (void)fs_->RemoveAll(temporary_);
}

std::string ShardWriter::TemporaryPath(size_t index) const {
  return JoinPath(temporary_, std::to_string(index));
}

Status ShardWriter::Add(const LabelledImage& image) {
  if (current_ == nullptr) {
    LOCKSTEP_ASSIGN_OR_RETURN(
        current_, TfRecordWriter::Create(fs_, TemporaryPath(shards_.size())));
  }
  LOCKSTEP_RETURN_IF_ERROR(current_->Append(EncodeExample(image)));
  if (current_->records() < options_.records_per_shard) return OkStatus();
  return FinishShard();
}

Status ShardWriter::FinishShard() {
  LOCKSTEP_RETURN_IF_ERROR(current_->Finish());
  shards_.push_back({"", current_->records(), current_->bytes()});
  current_.reset();
  return OkStatus();
}

StatusOr<std::vector<WrittenShard>> ShardWriter::Publish() {
  if (current_ != nullptr) LOCKSTEP_RETURN_IF_ERROR(FinishShard());
  if (shards_.empty()) return FailedPrecondition("there is nothing to pack");
  std::vector<std::string> paths;
  for (size_t i = 0; i < shards_.size(); ++i) {
    WrittenShard& shard = shards_[i];
    shard.path = JoinPath(
        options_.directory,
        FormatShardName(options_.name, i, shards_.size(), shard.records));
    LOCKSTEP_RETURN_IF_ERROR(fs_->Rename(TemporaryPath(i), shard.path));
    paths.push_back(shard.path);
  }
  // Done last: a reader in between finds two files of one shard and reports it,
  // instead of too few samples.
  for (const std::string& old : old_shards_) {
    if (std::find(paths.begin(), paths.end(), old) != paths.end()) continue;
    LOCKSTEP_RETURN_IF_ERROR(fs_->Remove(old));
  }
  LOCKSTEP_RETURN_IF_ERROR(fs_->SyncDir(options_.directory));
  return std::move(shards_);
}

}  // namespace lockstep::worker::data
