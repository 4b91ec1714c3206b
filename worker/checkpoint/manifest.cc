#include "worker/checkpoint/manifest.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "worker/checkpoint/sealed_json.h"

namespace lockstep::worker::checkpoint {
namespace {

using nlohmann::json;

constexpr uint64_t kFormat = 1;
constexpr size_t kMaxName = 256;
constexpr size_t kMaxLineage = 65'536;

Status Check(const Manifest& manifest) {
  if (manifest.job.empty() || manifest.job.size() > kMaxName) {
    return InvalidArgument("job name has {} bytes: want 1 to {}",
                           manifest.job.size(), kMaxName);
  }
  if (manifest.step < 0 || manifest.step > kMaxStep) {
    return InvalidArgument("step {}: want 0 to {}", manifest.step, kMaxStep);
  }
  if (manifest.world_size == 0 || manifest.world_size > kMaxWorldSize) {
    return InvalidArgument("world size {}: want 1 to {}", manifest.world_size,
                           kMaxWorldSize);
  }
  if (manifest.shards.size() != manifest.world_size) {
    return InvalidArgument("{} shards for {} ranks", manifest.shards.size(),
                           manifest.world_size);
  }
  if (manifest.lineage.size() > kMaxLineage) {
    return InvalidArgument(
        "the lineage has {} generations, at most {} are allowed",
        manifest.lineage.size(), kMaxLineage);
  }
  if (manifest.metadata.size() > kMaxMetadataEntries) {
    return InvalidArgument("{} metadata entries, at most {} are allowed",
                           manifest.metadata.size(), kMaxMetadataEntries);
  }
  for (const auto& [key, value] : manifest.metadata) {
    if (key.size() > kMaxName || value.size() > kMaxMetadataValue) {
      return InvalidArgument(
          "metadata {}: key or value too long (at most {} and {} bytes)",
          key.substr(0, 64), kMaxName, kMaxMetadataValue);
    }
  }
  return OkStatus();
}

Status ReadLineage(const json& list, Manifest* manifest) {
  if (list.size() > kMaxLineage) {
    return DataLoss("field lineage: {} entries", list.size());
  }
  for (const json& item : list) {
    if (!item.is_object())
      return DataLoss("field lineage: not an array of objects");
    FieldReader reader(item);
    manifest->lineage.push_back(
        {reader.Unsigned("generation"), reader.Step("start_step")});
    LOCKSTEP_RETURN_IF_ERROR(Annotate(reader.status(), "lineage"));
  }
  return OkStatus();
}

Status ReadMetadata(const json& object, Manifest* manifest) {
  for (const auto& [key, value] : object.items()) {
    if (!value.is_string()) return DataLoss("metadata {}: not a string", key);
    manifest->metadata[key] = value.get<std::string>();
  }
  return OkStatus();
}

Status ReadShards(const json& list, Manifest* manifest) {
  if (list.size() != manifest->world_size) {
    return DataLoss("{} shards for {} ranks", list.size(),
                    manifest->world_size);
  }
  for (uint32_t rank = 0; rank < manifest->world_size; ++rank) {
    if (!list[rank].is_object())
      return DataLoss("shard {}: not an object", rank);
    FieldReader reader(list[rank]);
    const std::string name = reader.String("file", kMaxName);
    manifest->shards.push_back(reader.Sums());
    LOCKSTEP_RETURN_IF_ERROR(
        Annotate(reader.status(), fmt::format("shard {}", rank)));
    if (name != ShardName(rank, manifest->world_size)) {
      return DataLoss("shard {} has the name '{}'", rank, name.substr(0, 64));
    }
  }
  return OkStatus();
}

}  // namespace

bool IsOnLineage(std::span<const LineageEntry> lineage,
                 const CheckpointKey& key) {
  bool known = false;
  for (const LineageEntry& entry : lineage) {
    if (entry.generation == key.generation) {
      if (key.step < entry.start_step) return false;
      known = true;
    } else if (entry.generation > key.generation &&
               entry.start_step != LineageEntry::kNotSaid &&
               key.step > entry.start_step) {
      return false;
    }
  }
  return known;
}

StatusOr<std::string> EncodeManifest(const Manifest& manifest) {
  LOCKSTEP_RETURN_IF_ERROR(Check(manifest));
  nlohmann::ordered_json out;
  out["format"] = kFormat;
  out["job"] = manifest.job;
  out["generation"] = manifest.generation;
  out["step"] = manifest.step;
  out["id"] = manifest.id;
  out["epoch"] = manifest.cursor.epoch;
  out["position"] = manifest.cursor.position;
  out["world_size"] = manifest.world_size;
  out["state_hash"] = Hex64(manifest.state_hash);
  out["written"] = manifest.written;
  auto lineage = nlohmann::ordered_json::array();
  for (const LineageEntry& entry : manifest.lineage) {
    // An entry without a start step has no output; the text for users omits it.
    if (entry.start_step == LineageEntry::kNotSaid) continue;
    lineage.push_back({{"generation", entry.generation},
                       {"start_step", static_cast<uint64_t>(std::max<int64_t>(
                                          0, entry.start_step))}});
  }
  out["lineage"] = std::move(lineage);
  out["metadata"] = manifest.metadata;
  auto shards = nlohmann::ordered_json::array();
  for (uint32_t rank = 0; rank < manifest.world_size; ++rank) {
    nlohmann::ordered_json shard;
    shard["file"] = ShardName(rank, manifest.world_size);
    PutSums(manifest.shards[rank], &shard);
    shards.push_back(std::move(shard));
  }
  out["shards"] = std::move(shards);
  LOCKSTEP_ASSIGN_OR_RETURN(std::string text, Seal(out));
  if (text.size() > kMaxManifestBytes) {
    return InvalidArgument("the manifest has {} bytes, at most {} are allowed",
                           text.size(), kMaxManifestBytes);
  }
  return text;
}

StatusOr<Manifest> DecodeManifest(std::string_view text) {
  LOCKSTEP_ASSIGN_OR_RETURN(const json in, Unseal(text, kManifestName));
  FieldReader reader(in);
  const uint64_t format = reader.Unsigned("format");
  if (reader.status().ok() && format != kFormat) {
    return DataLoss("{} has format {}, but this program reads {}",
                    kManifestName, format, kFormat);
  }
  Manifest manifest;
  manifest.job = reader.String("job", kMaxName);
  manifest.generation = reader.Unsigned("generation");
  manifest.step = reader.Step("step");
  manifest.id = reader.Unsigned("id");
  manifest.cursor = {reader.Unsigned("epoch"), reader.Unsigned("position")};
  manifest.world_size =
      static_cast<uint32_t>(reader.Unsigned("world_size", kMaxWorldSize));
  manifest.state_hash = reader.Hex64("state_hash");
  manifest.written = reader.String("written", kMaxName);
  const json& lineage = reader.Member("lineage", json::value_t::array);
  const json& metadata = reader.Member("metadata", json::value_t::object);
  const json& shards = reader.Member("shards", json::value_t::array);
  Status status = reader.status();
  if (status.ok()) status = ReadLineage(lineage, &manifest);
  if (status.ok()) status = ReadMetadata(metadata, &manifest);
  if (status.ok()) status = ReadShards(shards, &manifest);
  if (status.ok()) status = Check(manifest);
  if (!status.ok()) {
    return DataLoss("{}: {}", kManifestName, Message(status));
  }
  return manifest;
}

}  // namespace lockstep::worker::checkpoint
