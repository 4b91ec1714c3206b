#include "server/site/site_tables.h"

#include <utility>

#include "common/training/site_file.h"

namespace lockstep::server {
namespace {

constexpr uint64_t kMaxFile = 4 << 20;

StatusOr<Site> Load(FileSystem* files, const std::string& path) {
  auto text = files->Read(path, kMaxFile);
  if (!text.ok()) {
    return Annotate(text.status(), "the table of machines cannot be read");
  }
  return ParseSiteFile(*text, path);
}

}  // namespace

SiteTables::SiteTables() : SiteTables(DefaultSite()) {}

SiteTables::SiteTables(Site site)
    : site_(std::make_shared<const Site>(std::move(site))) {}

StatusOr<std::unique_ptr<SiteTables>> SiteTables::Open(
    FileSystem* files, const std::string& path) {
  LOCKSTEP_ASSIGN_OR_RETURN(Site site, Load(files, path));
  auto tables = std::make_unique<SiteTables>(std::move(site));
  tables->files_ = files;
  tables->path_ = path;
  return tables;
}

std::shared_ptr<const Site> SiteTables::Get() const {
  MutexLock lock(&mu_);
  return site_;
}

Status SiteTables::Reload() {
  if (path_.empty()) return OkStatus();
  LOCKSTEP_ASSIGN_OR_RETURN(Site site, Load(files_, path_));
  Set(std::move(site));
  return OkStatus();
}

void SiteTables::Set(Site site) {
  auto next = std::make_shared<const Site>(std::move(site));
  MutexLock lock(&mu_);
  site_ = std::move(next);
}

}  // namespace lockstep::server
