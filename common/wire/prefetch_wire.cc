// What nodes fetch for jobs that wait.
#include "common/wire/fields.h"
#include "common/wire/worker_wire.h"

namespace lockstep {

LOCKSTEP_FIELDS(Prefetch, v1::Prefetch) {
  LOCKSTEP_FIELD(epoch, kPositive);
  LOCKSTEP_FIELD(images, AtMost(kMaxPrefetched));
  LOCKSTEP_FIELD(packages, AtMost(kMaxPrefetched));
}

LOCKSTEP_FIELDS(Prefetched, v1::Prefetched) {
  v.OnRead([](const v1::Prefetched& from, Prefetched*, FieldChecker* check) {
    check->Require(from.has_image() == from.package_digest().empty(), "image",
                   "must be there where package_digest is not, and only there");
    check->Require(
        !from.has_image() || !from.ready() || !from.content().id().empty(),
        "content", "is missing");
  });
  LOCKSTEP_FIELD(image);
  LOCKSTEP_FIELD(package_digest,
                 EmptyOr(Matching(IsPackageDigest, " is not a digest")));
  LOCKSTEP_FIELD(content);
  LOCKSTEP_FIELD(ready);
  LOCKSTEP_FIELD(fetched);
  LOCKSTEP_FIELD(duration);
  LOCKSTEP_FIELD(error, Bytes(kMaxReportText));
}

LOCKSTEP_FIELDS(PrefetchReport, v1::PrefetchStatus) {
  LOCKSTEP_FIELD(items, AtMost(2 * kMaxPrefetched));
}

}  // namespace lockstep
