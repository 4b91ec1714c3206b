#include <utility>

#include "common/base/fault_point.h"
#include "common/base/hex.h"
#include "server/packages/package_store.h"

namespace lockstep::server {
namespace {

std::string Digest(std::string_view sha) { return "sha256:" + ToHex(sha); }

}  // namespace

PackageStore::Upload::Upload(PackageStore* store, Package package,
                             std::string owner, std::string path,
                             std::unique_ptr<WritableFile> file)
    : store_(store),
      package_(std::move(package)),
      owner_(std::move(owner)),
      path_(std::move(path)),
      file_(std::move(file)) {}

PackageStore::Upload::~Upload() {
  if (done_) return;
  (void)file_->Close();
  (void)store_->files_->Remove(path_);
  store_->Release(*this, false);
}

Status PackageStore::Upload::Append(std::string_view data) {
  const auto bytes = static_cast<uint64_t>(package_.bytes);
  if (data.size() > bytes - written_) {
    return InvalidArgument("package {}: has more than the declared {} bytes",
                           package_.file_name, bytes);
  }
  LOCKSTEP_RETURN_IF_ERROR(FaultPoint("package_append"));
  LOCKSTEP_RETURN_IF_ERROR(file_->Append(data));
  sha_.Add(data);
  return store_->Wrote(this, data.size());
}

Status PackageStore::Upload::Finish() {
  const auto bytes = static_cast<uint64_t>(package_.bytes);
  if (written_ != bytes) {
    return InvalidArgument(
        "package {}: ended after {} of the declared {} bytes",
        package_.file_name, written_, bytes);
  }
  const std::string digest = Digest(sha_.Digest());
  if (digest != package_.digest) {
    return InvalidArgument(
        "package {}: has the digest {}, not the declared {}: it changed "
        "in transit or while it was read",
        package_.file_name, digest, package_.digest);
  }
  LOCKSTEP_RETURN_IF_ERROR(file_->Sync());
  LOCKSTEP_RETURN_IF_ERROR(file_->Close());
  LOCKSTEP_RETURN_IF_ERROR(store_->Publish(*this));
  done_ = true;
  store_->Release(*this, true);
  return OkStatus();
}

}  // namespace lockstep::server
