#include "client/package/pack.h"

#include <archive.h>
#include <archive_entry.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <memory>

#include "client/package/gzip_writer.h"
#include "client/package/list.h"
#include "common/base/file.h"
#include "common/base/hex.h"
#include "common/base/sha256.h"

namespace lockstep::cli {
namespace {

constexpr size_t kPackBuffer = 256 << 10;

struct FreeArchive {
  void operator()(archive* a) const { archive_write_free(a); }
};
struct FreeEntry {
  void operator()(archive_entry* e) const { archive_entry_free(e); }
};

// Opens an unnamed file in $TMPDIR, which vanishes even after a crash.
StatusOr<Fd> MakeScratch() {
  const char* const dir = getenv("TMPDIR");
  std::string path = JoinPath(dir && *dir ? dir : "/tmp", "lockstep-XXXXXX");
  Fd fd(mkostemp(path.data(), O_CLOEXEC));
  if (!fd) return ErrnoStatus(errno, "making a scratch file " + path);
  unlink(path.c_str());
  return fd;
}

// Receives the archive's bytes: compresses, hashes and writes them.
struct Sink {
  int fd = -1;
  Sha256Stream hash;
  int64_t bytes = 0;
  // The first error; libarchive only knows that there was one.
  Status status;
  GzipWriter gzip{[this](std::string_view packed) { return Put(packed); }};

  Status Put(std::string_view packed) {
    for (std::string_view rest = packed; !rest.empty();) {
      const ssize_t n = write(fd, rest.data(), rest.size());
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) return ErrnoStatus(errno, "writing the packed file");
      rest.remove_prefix(static_cast<size_t>(n));
    }
    hash.Add(packed);
    bytes += static_cast<int64_t>(packed.size());
    return OkStatus();
  }
};

la_ssize_t WriteSink(archive*, void* client, const void* data, size_t size) {
  Sink* const sink = static_cast<Sink*>(client);
  sink->status = sink->gzip.Write({static_cast<const char*>(data), size});
  return sink->status.ok() ? static_cast<la_ssize_t>(size) : -1;
}

class Packer {
 public:
  Packer(std::string folder, const PackOptions& options)
      : folder_(std::move(folder)),
        options_(options),
        archive_(archive_write_new()) {}

  StatusOr<PackedPackage> Run(const std::vector<PackEntry>& entries) {
    PackedPackage out;
    LOCKSTEP_ASSIGN_OR_RETURN(out.file, MakeScratch());
    sink_.fd = out.file.get();
    archive* const a = archive_.get();
    archive_write_set_format_pax_restricted(a);
    // Stores names unchanged, whatever the locale.
    archive_write_set_format_option(a, "pax", "hdrcharset", "BINARY");
    // No blocking, because the sink buffers itself.
    archive_write_set_bytes_per_block(a, 0);
    archive_write_set_bytes_in_last_block(a, 1);
    LOCKSTEP_RETURN_IF_ERROR(
        Check(archive_write_open(a, &sink_, nullptr, WriteSink, nullptr)));
    for (const PackEntry& entry : entries) {
      LOCKSTEP_RETURN_IF_ERROR(Add(entry));
      out.unpacked_bytes += entry.bytes;
    }
    LOCKSTEP_RETURN_IF_ERROR(Check(archive_write_close(a)));
    LOCKSTEP_RETURN_IF_ERROR(Annotated(sink_.gzip.Close()));
    out.entries = static_cast<int64_t>(entries.size());
    out.package.digest = "sha256:" + ToHex(sink_.hash.Digest());
    out.package.bytes = sink_.bytes;
    out.package.format = PackageFormat::kTree;
    return out;
  }

 private:
  Status Annotated(const Status& status) const {
    return status.ok() ? status : Annotate(status, "packing " + folder_);
  }

  // Converts libarchive's error.
  Status Check(int code) {
    if (!sink_.status.ok()) return Annotated(sink_.status);
    if (code >= ARCHIVE_WARN) return OkStatus();
    const char* const text = archive_error_string(archive_.get());
    const std::string what =
        fmt::format("packing {}: {}", folder_, text ? text : "failed");
    const int error = archive_errno(archive_.get());
    return error > 0 ? ErrnoStatus(error, what) : Internal("{}", what);
  }

  Status Add(const PackEntry& in) {
    if (options_.stopped && options_.stopped()) {
      return Cancelled("stopped while packing {}", folder_);
    }
    const std::unique_ptr<archive_entry, FreeEntry> entry(archive_entry_new());
    archive_entry* const e = entry.get();
    const std::string name =
        options_.prefix.empty() ? in.path : options_.prefix + "/" + in.path;
    archive_entry_set_pathname(e, name.c_str());
    archive_entry_set_mtime(e, 0, 0);
    archive_entry_set_uid(e, 0);
    archive_entry_set_gid(e, 0);
    const bool is_file = in.kind == PackEntry::Kind::kFile;
    archive_entry_set_filetype(
        e, is_file ? AE_IFREG
                   : (in.kind == PackEntry::Kind::kLink ? AE_IFLNK : AE_IFDIR));
    archive_entry_set_perm(e, is_file && !in.executable ? 0644 : 0755);
    if (is_file) archive_entry_set_size(e, in.bytes);
    if (in.kind == PackEntry::Kind::kLink) {
      archive_entry_set_symlink(e, in.target.c_str());
    }
    LOCKSTEP_RETURN_IF_ERROR(Check(archive_write_header(archive_.get(), e)));
    return is_file ? AddBytes(in) : OkStatus();
  }

  // Adds as many bytes as the header declares; later appends are ignored.
  Status AddBytes(const PackEntry& in) {
    const std::string path = JoinPath(folder_, in.path);
    const Fd file(
        open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
    if (!file) return ErrnoStatus(errno, "reading " + path);
    buffer_.resize(kPackBuffer);
    for (int64_t left = in.bytes; left > 0;) {
      if (options_.stopped && options_.stopped()) {
        return Cancelled("stopped while packing {}", folder_);
      }
      const ssize_t n =
          read(file.get(), buffer_.data(),
               std::min<size_t>(buffer_.size(), static_cast<size_t>(left)));
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) return ErrnoStatus(errno, "reading " + path);
      if (n == 0) {
        return Aborted("{} became shorter while it was packed; try again",
                       path);
      }
      if (archive_write_data(archive_.get(), buffer_.data(), n) != n) {
        return Check(ARCHIVE_FATAL);
      }
      left -= n;
    }
    return OkStatus();
  }

  const std::string folder_;
  const PackOptions& options_;
  Sink sink_;  // Outlives the archive, which writes to it when freed.
  std::unique_ptr<archive, FreeArchive> archive_;
  std::string buffer_;
};

// True for file names that pip and every file system accept.
bool IsPackageName(std::string_view name) {
  return !name.empty() && name.size() <= 200 && name[0] != '.' &&
         name[0] != '-' && std::all_of(name.begin(), name.end(), [](char c) {
           return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                  (c >= '0' && c <= '9') ||
                  std::string_view("._-+!").find(c) != std::string_view::npos;
         });
}

// Converts a folder's name to a file name.
std::string FileNameOf(std::string name) {
  name.resize(std::min<size_t>(name.size(), 100));
  for (char& c : name) {
    if (!IsPackageName("a" + std::string(1, c))) c = '_';
  }
  if (name.empty()) name = "package";
  if (!IsPackageName(name)) name[0] = '_';
  return name + ".tar.gz";
}

StatusOr<PackageFormat> FormatOf(const std::string& path,
                                 const std::string& name) {
  if (!IsPackageName(name)) {
    return InvalidArgument(
        "{}: its name has invalid characters; letters, digits and "
        "\"._-+\" work",
        path);
  }
  if (name.ends_with(".tar.gz")) return PackageFormat::kSdist;
  if (!name.ends_with(".whl")) {
    return InvalidArgument(
        "{} is neither an sdist (.tar.gz) nor a wheel (.whl); for a folder "
        "give "
        "--package-path",
        path);
  }
  // NAME-VERSION(-BUILD)?-PYTHON-ABI-PLATFORM.whl
  const auto dashes = std::count(name.begin(), name.end(), '-');
  if (dashes < 4 || dashes > 5) {
    return InvalidArgument(
        "{}: a wheel's name is NAME-VERSION-PYTHON-ABI-PLATFORM.whl, such as "
        "trainer-0.1-py3-none-any.whl; pip rejects other names",
        path);
  }
  return PackageFormat::kWheel;
}

}  // namespace

StatusOr<PackedPackage> PackFolder(const std::string& folder,
                                   const PackOptions& options) {
  char real[PATH_MAX];
  if (!realpath(folder.c_str(), real)) return ErrnoStatus(errno, folder);
  struct stat info {};
  if (stat(real, &info) != 0) return ErrnoStatus(errno, folder);
  if (!S_ISDIR(info.st_mode)) {
    return InvalidArgument("{} is not a folder", folder);
  }
  LOCKSTEP_ASSIGN_OR_RETURN(
      const std::vector<PackEntry> entries,
      ListFolder(real, options.prefix, options.limits, options.stopped));
  if (std::none_of(entries.begin(), entries.end(), [](const PackEntry& e) {
        return e.kind == PackEntry::Kind::kFile;
      })) {
    return InvalidArgument("{} has no files after exclusions", folder);
  }
  LOCKSTEP_ASSIGN_OR_RETURN(PackedPackage out,
                            Packer(real, options).Run(entries));
  const std::string_view whole = real;
  out.package.file_name = FileNameOf(
      options.prefix.empty() ? std::string(whole.substr(whole.rfind('/') + 1))
                             : options.prefix);
  return out;
}

StatusOr<PackedPackage> OpenPackageFile(const std::string& path,
                                        const PackLimits& limits) {
  PackedPackage out;
  out.package.file_name = path.substr(path.rfind('/') + 1);
  out.file = Fd(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!out.file) return ErrnoStatus(errno, path);
  struct stat info {};
  if (fstat(out.file.get(), &info) != 0) return ErrnoStatus(errno, path);
  if (S_ISDIR(info.st_mode)) {
    return InvalidArgument("{} is a folder: give it as --package-path", path);
  }
  if (!S_ISREG(info.st_mode)) return InvalidArgument("{} is not a file", path);
  LOCKSTEP_ASSIGN_OR_RETURN(out.package.format,
                            FormatOf(path, out.package.file_name));
  if (info.st_size > limits.bytes) {
    return ResourceExhausted("{} has {} MiB; at most {} MiB are allowed", path,
                             info.st_size >> 20, limits.bytes >> 20);
  }
  Sha256Stream hash;
  std::string buffer(kPackBuffer, '\0');
  std::string head;
  while (out.package.bytes <= limits.bytes) {
    LOCKSTEP_ASSIGN_OR_RETURN(
        const size_t n,
        ReadPackage(out, out.package.bytes, buffer.data(), buffer.size()));
    if (n == 0) break;
    if (head.empty()) head = buffer.substr(0, std::min<size_t>(n, 2));
    hash.Add({buffer.data(), n});
    out.package.bytes += static_cast<int64_t>(n);
  }
  const bool is_wheel = out.package.format == PackageFormat::kWheel;
  if (head != (is_wheel ? "PK" : "\x1f\x8b")) {
    return InvalidArgument("{} is not {}, whatever its name says", path,
                           is_wheel ? "a zip file" : "gzipped");
  }
  out.package.digest = "sha256:" + ToHex(hash.Digest());
  return out;
}

StatusOr<size_t> ReadPackage(const PackedPackage& package, uint64_t offset,
                             char* buffer, size_t size) {
  while (true) {
    const ssize_t n =
        pread(package.file.get(), buffer, size, static_cast<off_t>(offset));
    if (n >= 0) return static_cast<size_t>(n);
    if (errno != EINTR) {
      return ErrnoStatus(errno, "reading " + package.package.file_name);
    }
  }
}

}  // namespace lockstep::cli
