#include "worker/data/pack.h"

#include <algorithm>
#include <utility>

#include "worker/data/idx.h"
#include "worker/data/jpeg.h"
#include "worker/data/permutation.h"

namespace lockstep::worker::data {
namespace {

struct Picture {
  std::string path;
  int32_t label = 0;
};

bool IsJpegName(const std::string& name) {
  const size_t dot = name.rfind('.');
  if (dot == std::string::npos || name.front() == '.') return false;
  std::string suffix = name.substr(dot + 1);
  std::transform(suffix.begin(), suffix.end(), suffix.begin(), [](char c) {
    return static_cast<char>(c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c);
  });
  return suffix == "jpg" || suffix == "jpeg";
}

// Fills `classes` and returns the pictures, class by class.
StatusOr<std::vector<Picture>> ListPictures(FileSystem* fs,
                                            const std::string& directory,
                                            std::vector<std::string>* classes) {
  std::vector<Picture> pictures;
  LOCKSTEP_ASSIGN_OR_RETURN(const auto names, fs->List(directory));
  for (const std::string& name : names) {
    const std::string path = JoinPath(directory, name);
    if (name.front() == '.') continue;
    LOCKSTEP_ASSIGN_OR_RETURN(const FileInfo info, fs->Stat(path));
    if (!info.is_directory) continue;
    if (name.find('\n') != std::string::npos) {
      return InvalidArgument("the class name {} contains a line break", path);
    }
    LOCKSTEP_ASSIGN_OR_RETURN(const auto files, fs->List(path));
    const size_t before = pictures.size();
    for (const std::string& file : files) {
      if (!IsJpegName(file)) continue;
      pictures.push_back(
          {JoinPath(path, file), static_cast<int32_t>(classes->size())});
    }
    if (pictures.size() == before) {
      return InvalidArgument(
          "the class directory {} has no *.jpg or *.jpeg file", path);
    }
    classes->push_back(name);
  }
  if (pictures.empty()) {
    return InvalidArgument(
        "{} has no directories with *.jpg or *.jpeg files: put the images of "
        "each class into a directory with its name",
        directory);
  }
  return pictures;
}

// Returns the stored form of a JPEG file. `*storage` owns the bytes of the
// result.
StatusOr<LabelledImage> Prepare(const std::string& file,
                                const JpegFolderOptions& options,
                                std::string* storage) {
  const bool resize = options.height != 0;
  // Decoded images are RGB, so all have the same number of channels.
  LOCKSTEP_ASSIGN_OR_RETURN(Image image,
                            DecodeJpeg(file, resize || options.raw ? 3 : 0));
  if (resize) image = Resize(image, options.height, options.width);
  LabelledImage result;
  result.shape = image.shape;
  if (options.raw) {
    result.format = ImageFormat::kRaw;
    storage->assign(image.pixels.begin(), image.pixels.end());
  } else {
    result.format = ImageFormat::kJpeg;
    if (resize) {
      LOCKSTEP_ASSIGN_OR_RETURN(*storage, EncodeJpeg(image, options.quality));
    } else {
      *storage = file;
    }
  }
  result.encoded = *storage;
  return result;
}

Status CheckFolderOptions(const JpegFolderOptions& options) {
  if (options.quality < 1 || options.quality > 100) {
    return InvalidArgument("the JPEG quality {} is not in 1 to 100",
                           options.quality);
  }
  if (options.height == 0 && options.width == 0) return OkStatus();
  return CheckShape({options.height, options.width, 3});
}

Status AddPicture(FileSystem* fs, const Picture& picture,
                  const JpegFolderOptions& options, PackResult* result,
                  ShardWriter* writer) {
  LOCKSTEP_ASSIGN_OR_RETURN(const std::string file, fs->Read(picture.path));
  std::string storage;
  StatusOr<LabelledImage> image = Prepare(file, options, &storage);
  if (!image.ok()) {
    const Status status = Annotate(image.status(), picture.path);
    if (!options.skip_damaged) return status;
    result->skipped.push_back(Message(status));
    return OkStatus();
  }
  image->label = picture.label;
  image->class_name = result->classes[static_cast<size_t>(picture.label)];
  LOCKSTEP_RETURN_IF_ERROR(writer->Add(*image));
  ++result->samples;
  return OkStatus();
}

}  // namespace

StatusOr<PackResult> PackIdx(FileSystem* fs, const std::string& images_path,
                             const std::string& labels_path,
                             const ShardOptions& options) {
  LOCKSTEP_ASSIGN_OR_RETURN(const auto writer,
                            ShardWriter::Create(fs, options));
  LOCKSTEP_ASSIGN_OR_RETURN(const IdxDataset data,
                            IdxDataset::Read(fs, images_path, labels_path));
  LabelledImage image;
  image.format = ImageFormat::kRaw;
  image.shape = data.shape();
  for (uint64_t i = 0; i < data.count(); ++i) {
    image.encoded = data.image(i);
    image.label = data.label(i);
    LOCKSTEP_RETURN_IF_ERROR(writer->Add(image));
  }
  PackResult result;
  result.samples = data.count();
  LOCKSTEP_ASSIGN_OR_RETURN(result.shards, writer->Publish());
  return result;
}

StatusOr<PackResult> PackJpegFolder(FileSystem* fs,
                                    const std::string& directory,
                                    const JpegFolderOptions& folder,
                                    const ShardOptions& options) {
  LOCKSTEP_RETURN_IF_ERROR(CheckFolderOptions(folder));
  PackResult result;
  LOCKSTEP_ASSIGN_OR_RETURN(const auto pictures,
                            ListPictures(fs, directory, &result.classes));
  LOCKSTEP_ASSIGN_OR_RETURN(const auto writer,
                            ShardWriter::Create(fs, options));
  const Permutation order(pictures.size(), folder.seed, /*epoch=*/0);
  for (uint64_t i = 0; i < pictures.size(); ++i) {
    LOCKSTEP_RETURN_IF_ERROR(
        AddPicture(fs, pictures[order(i)], folder, &result, writer.get()));
  }
  if (result.samples == 0) {
    return DataLoss("every image in {} is damaged, the first: {}", directory,
                    result.skipped.front());
  }
  std::string labels;
  for (const std::string& name : result.classes) labels += name + "\n";
  LOCKSTEP_ASSIGN_OR_RETURN(result.shards, writer->Publish());
  LOCKSTEP_RETURN_IF_ERROR(fs->WriteAtomic(
      JoinPath(options.directory, options.name + "-labels.txt"), labels));
  return result;
}

}  // namespace lockstep::worker::data
