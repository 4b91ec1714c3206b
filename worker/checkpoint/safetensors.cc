#include "worker/checkpoint/safetensors.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <nlohmann/json.hpp>
#include <set>

#include "worker/checkpoint/layout.h"

namespace lockstep::worker::checkpoint {
namespace {

using nlohmann::json;

static_assert(std::endian::native == std::endian::little,
              "tensors are stored as they lie in memory: little-endian");

constexpr char kMetadataKey[] = "__metadata__";

// Returns false for text that is not UTF-8.
bool Quote(const std::string& text, std::string* out) {
  try {
    *out += json(text).dump();
    return true;
  } catch (const json::exception&) {
    return false;
  }
}

StatusOr<std::string> QuoteMetadata(const Metadata& metadata) {
  std::string out;
  for (const auto& [key, value] : metadata) {
    out += out.empty() ? "" : ",";
    if (!Quote(key, &out) || !Quote(value, &(out += ':'))) {
      return InvalidArgument("metadata {} is not valid UTF-8", key);
    }
  }
  return out;
}

// Keys of one object may not repeat: nlohmann would keep the last and another
// reader the first.
class DuplicateKeys {
 public:
  bool operator()(int depth, json::parse_event_t event, json& parsed) {
    const size_t level = static_cast<size_t>(depth);
    if (event == json::parse_event_t::object_start) {
      // Nothing valid is deeper; the parser itself does not recurse.
      if (level >= seen_.size()) return bad_ = true;
      seen_[level].clear();
    } else if (event == json::parse_event_t::key && level >= 1 &&
               level <= seen_.size()) {
      if (!seen_[level - 1].insert(parsed.get<std::string>()).second) {
        bad_ = true;
      }
    }
    return true;
  }
  bool bad() const { return bad_; }

 private:
  std::vector<std::set<std::string>> seen_ =
      std::vector<std::set<std::string>>(2);
  bool bad_ = false;
};

struct Entry {
  TensorView view;
  uint64_t begin = 0;
  uint64_t end = 0;
};

StatusOr<Entry> ParseEntry(const std::string& name, const json& value) {
  const auto fail = [&name] {
    return DataLoss(
        "tensor {}: want dtype, shape and data_offsets in its header",
        name.substr(0, 64));
  };
  if (!value.is_object()) return fail();
  const auto dtype = value.find("dtype");
  const auto shape = value.find("shape");
  const auto offsets = value.find("data_offsets");
  if (dtype == value.end() || !dtype->is_string() || shape == value.end() ||
      !shape->is_array() || offsets == value.end() || !offsets->is_array() ||
      offsets->size() != 2 || !(*offsets)[0].is_number_unsigned() ||
      !(*offsets)[1].is_number_unsigned()) {
    return fail();
  }
  Entry entry;
  entry.view.name = name;
  const auto known = ParseDType(dtype->get_ref<const std::string&>());
  if (!known) {
    return Unimplemented("tensor {}: type {} is not one we read",
                         name.substr(0, 64),
                         dtype->get_ref<const std::string&>().substr(0, 16));
  }
  entry.view.dtype = *known;
  for (const json& dimension : *shape) {
    if (!dimension.is_number_unsigned() ||
        dimension.get<uint64_t>() > INT64_MAX) {
      return fail();
    }
    entry.view.shape.push_back(dimension.get<int64_t>());
  }
  entry.begin = (*offsets)[0].get<uint64_t>();
  entry.end = (*offsets)[1].get<uint64_t>();
  if (entry.end < entry.begin) return fail();
  entry.view.bytes = entry.end - entry.begin;
  if (Status status = CheckTensor(entry.view); !status.ok()) {
    return DataLoss("{}", Message(status));
  }
  return entry;
}

Status ParseMetadata(const json& value, Metadata* metadata) {
  if (!value.is_object()) return DataLoss("{} is not an object", kMetadataKey);
  for (const auto& [key, text] : value.items()) {
    if (!text.is_string()) {
      return DataLoss("{} has a value that is not a string", kMetadataKey);
    }
    (*metadata)[key] = text.get<std::string>();
  }
  return OkStatus();
}

StatusOr<std::vector<Entry>> ParseHeader(std::string_view text,
                                         Metadata* metadata) {
  DuplicateKeys duplicates;
  const json header =
      json::parse(text, std::ref(duplicates), /*allow_exceptions=*/false);
  if (!header.is_object() || duplicates.bad()) {
    return DataLoss("its header is not a JSON object with distinct keys");
  }
  if (header.size() > kMaxTensors + 1) {
    return DataLoss("{} tensors, at most {} are allowed", header.size(),
                    kMaxTensors);
  }
  std::vector<Entry> entries;
  for (const auto& [name, value] : header.items()) {
    if (name == kMetadataKey) {
      LOCKSTEP_RETURN_IF_ERROR(ParseMetadata(value, metadata));
      continue;
    }
    LOCKSTEP_ASSIGN_OR_RETURN(Entry entry, ParseEntry(name, value));
    entries.push_back(std::move(entry));
  }
  std::sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) {
    return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
  });
  return entries;
}

}  // namespace

StatusOr<SafetensorsLayout> LayOutSafetensors(
    std::span<const TensorView> tensors, const Metadata& metadata) {
  if (tensors.size() > kMaxTensors) {
    return InvalidArgument("{} tensors, at most {} are allowed", tensors.size(),
                           kMaxTensors);
  }
  SafetensorsLayout layout;
  std::set<std::string_view> names = {kMetadataKey};
  for (const TensorView& tensor : tensors) {
    LOCKSTEP_RETURN_IF_ERROR(CheckTensor(tensor));
    if (!names.insert(tensor.name).second) {
      return InvalidArgument("two tensors have the name {}", tensor.name);
    }
    layout.order.push_back(&tensor);
  }
  std::stable_sort(layout.order.begin(), layout.order.end(),
                   [](const TensorView* a, const TensorView* b) {
                     return DTypeSize(a->dtype) > DTypeSize(b->dtype);
                   });
  LOCKSTEP_ASSIGN_OR_RETURN(const std::string quoted, QuoteMetadata(metadata));
  std::string text = "{";
  if (!quoted.empty()) {
    text += fmt::format("\"{}\":{{{}}}", kMetadataKey, quoted);
  }
  uint64_t offset = 0;
  for (const TensorView* tensor : layout.order) {
    if (text.size() > 1) text += ',';
    Quote(tensor->name, &text);  // ASCII: CheckTensor saw to it.
    text += fmt::format(
        ":{{\"dtype\":\"{}\",\"shape\":[{}],"
        "\"data_offsets\":[{},{}]}}",
        DTypeName(tensor->dtype), fmt::join(tensor->shape, ","), offset,
        offset + tensor->bytes);
    offset += tensor->bytes;
  }
  text += '}';
  text.append((8 - text.size() % 8) % 8, ' ');
  if (text.size() > kMaxHeaderBytes || offset > kMaxFileBytes) {
    return InvalidArgument(
        "the file is too large: {} bytes of names and {} of data, at most {} "
        "and {} are allowed",
        text.size(), offset, kMaxHeaderBytes, kMaxFileBytes);
  }
  const uint64_t length = text.size();
  layout.header.assign(reinterpret_cast<const char*>(&length), sizeof(length));
  layout.header += text;
  return layout;
}

Status WriteSafetensors(std::span<const TensorView> tensors,
                        const Metadata& metadata, ChecksummedFile* file) {
  LOCKSTEP_ASSIGN_OR_RETURN(const SafetensorsLayout layout,
                            LayOutSafetensors(tensors, metadata));
  LOCKSTEP_RETURN_IF_ERROR(file->Append(layout.header));
  for (const TensorView* tensor : layout.order) {
    LOCKSTEP_RETURN_IF_ERROR(file->Append(tensor->contents()));
  }
  return OkStatus();
}

Status SaveSafetensors(FileSystem* fs, const std::string& path,
                       std::span<const TensorView> tensors,
                       const Metadata& metadata) {
  const std::string temporary = path + ".tmp";
  const auto save = [&]() -> Status {
    LOCKSTEP_ASSIGN_OR_RETURN(auto created, fs->Create(temporary));
    ChecksummedFile file(std::move(created), nullptr);
    LOCKSTEP_RETURN_IF_ERROR(WriteSafetensors(tensors, metadata, &file));
    LOCKSTEP_RETURN_IF_ERROR(file.SyncAndClose());
    LOCKSTEP_RETURN_IF_ERROR(fs->Rename(temporary, path));
    return fs->SyncDir(ParentDir(path));
  };
  Status status = save();
  if (!status.ok()) fs->RemoveAll(temporary).IgnoreError();
  return Annotate(status, fmt::format("cannot save the model to {}", path));
}

StatusOr<Safetensors> Safetensors::Parse(std::unique_ptr<char[]> bytes,
                                         uint64_t size) {
  uint64_t length = 0;
  if (size < sizeof(length)) return DataLoss("it ends before its header");
  std::memcpy(&length, bytes.get(), sizeof(length));
  if (length > kMaxHeaderBytes || length > size - sizeof(length)) {
    return DataLoss("its header claims {} bytes", length);
  }
  Safetensors parsed;
  LOCKSTEP_ASSIGN_OR_RETURN(
      std::vector<Entry> entries,
      ParseHeader(std::string_view(bytes.get() + sizeof(length), length),
                  &parsed.metadata_));
  const uint64_t data_bytes = size - sizeof(length) - length;
  const char* data = bytes.get() + sizeof(length) + length;
  uint64_t end = 0;
  for (Entry& entry : entries) {
    if (entry.begin != end || entry.end > data_bytes) {
      return DataLoss(
          "tensor {} lies at bytes {} to {}, but byte {} of {} is next",
          entry.view.name, entry.begin, entry.end, end, data_bytes);
    }
    end = entry.end;
    entry.view.data = data + entry.begin;
    parsed.by_name_[entry.view.name] = parsed.tensors_.size();
    parsed.tensors_.push_back(std::move(entry.view));
  }
  if (end != data_bytes) {
    return DataLoss("{} bytes belong to no tensor", data_bytes - end);
  }
  parsed.bytes_ = std::move(bytes);
  return parsed;
}

StatusOr<Safetensors> Safetensors::Load(FileSystem* fs,
                                        const std::string& path) {
  LOCKSTEP_ASSIGN_OR_RETURN(const FileInfo info, fs->Stat(path));
  if (info.size > kMaxFileBytes) return DataLoss("{} is too large", path);
  LOCKSTEP_ASSIGN_OR_RETURN(auto file, fs->OpenRead(path));
  auto bytes = std::make_unique_for_overwrite<char[]>(info.size);
  LOCKSTEP_ASSIGN_OR_RETURN(const size_t n,
                            file->ReadAt(0, bytes.get(), info.size));
  auto parsed = Parse(std::move(bytes), n);
  if (!parsed.ok()) return Annotate(parsed.status(), path);
  return parsed;
}

const TensorView* Safetensors::Find(std::string_view name) const {
  const auto it = by_name_.find(name);
  return it == by_name_.end() ? nullptr : &tensors_[it->second];
}

}  // namespace lockstep::worker::checkpoint
