// What nodes fetch for jobs that wait.
#include "common/wire/field_checker.h"
#include "common/wire/worker_wire.h"

namespace lockstep {
namespace {

StatusOr<Prefetched> ParseItem(const v1::Prefetched& value,
                               std::string_view path) {
  FieldChecker check(path);
  Prefetched out;
  check.Require(value.has_image() != !value.package_digest().empty(), "image",
                "must be there where package_digest is not, and only there");
  check.Require(
      value.package_digest().empty() || IsPackageDigest(value.package_digest()),
      "package_digest", Quote(value.package_digest()) + " is no digest");
  if (value.has_image()) {
    check.Take(FromProto(value.image(), check.At("image")),
               &out.image.emplace());
    check.Require(!value.ready() || !value.content().id().empty(), "content",
                  "is missing");
  }
  if (value.has_content()) {
    check.Take(FromProto(value.content(), check.At("content")),
               &out.content.emplace());
  }
  check.Take(FromProto(value.duration(), check.At("duration")), &out.duration);
  check.Bytes("error", value.error(), kMaxReportText);
  if (!check.ok()) return check.status();
  out.package_digest = value.package_digest();
  out.ready = value.ready();
  out.fetched = value.fetched();
  out.error = value.error();
  return out;
}

}  // namespace

v1::Prefetch ToProto(const Prefetch& value) {
  v1::Prefetch out;
  out.set_epoch(value.epoch);
  for (const ImageContent& image : value.images) {
    *out.add_images() = ToProto(image);
  }
  for (const Package& package : value.packages) {
    *out.add_packages() = ToProto(package);
  }
  return out;
}

StatusOr<Prefetch> FromProto(const v1::Prefetch& value, std::string_view path) {
  FieldChecker check(path);
  Prefetch out;
  check.Require(value.epoch() > 0, "epoch", "must be 1 or more");
  check.Count("images", value.images_size(), kMaxPrefetched);
  for (int i = 0; check.ok() && i < value.images_size(); ++i) {
    check.Take(FromProto(value.images(i), check.At("images", i)),
               &out.images.emplace_back());
  }
  check.Count("packages", value.packages_size(), kMaxPrefetched);
  for (int i = 0; check.ok() && i < value.packages_size(); ++i) {
    check.Take(FromProto(value.packages(i), check.At("packages", i)),
               &out.packages.emplace_back());
  }
  if (!check.ok()) return check.status();
  out.epoch = value.epoch();
  return out;
}

v1::PrefetchStatus ToProto(const PrefetchReport& value) {
  v1::PrefetchStatus out;
  for (const Prefetched& item : value.items) {
    v1::Prefetched* proto = out.add_items();
    if (item.image) *proto->mutable_image() = ToProto(*item.image);
    proto->set_package_digest(item.package_digest);
    if (item.content) *proto->mutable_content() = ToProto(*item.content);
    proto->set_ready(item.ready);
    proto->set_fetched(item.fetched);
    *proto->mutable_duration() = ToProto(item.duration);
    proto->set_error(item.error);
  }
  return out;
}

StatusOr<PrefetchReport> FromProto(const v1::PrefetchStatus& value,
                                   std::string_view path) {
  FieldChecker check(path);
  PrefetchReport out;
  check.Count("items", value.items_size(), 2 * kMaxPrefetched);
  for (int i = 0; check.ok() && i < value.items_size(); ++i) {
    check.Take(ParseItem(value.items(i), check.At("items", i)),
               &out.items.emplace_back());
  }
  if (!check.ok()) return check.status();
  return out;
}

}  // namespace lockstep
