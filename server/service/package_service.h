// PackageService of proto/lockstep/v1/package.proto: streams of bytes into and
// out of the PackageStore. A call holds a thread while it lives, so there are
// only so many at once.
#ifndef LOCKSTEP_SERVER_SERVICE_PACKAGE_SERVICE_H_
#define LOCKSTEP_SERVER_SERVICE_PACKAGE_SERVICE_H_

#include "common/base/clock.h"
#include "lockstep/v1/package.grpc.pb.h"
#include "server/packages/package_store.h"
#include "server/service/turns.h"

namespace lockstep {

struct PackageServiceOptions {
  TurnLimits uploads{16, 4};
  TurnLimits fetches{64, 16};
  // A call whose peer neither sends nor takes anything for so long is ended.
  Duration idle = std::chrono::seconds(60);
};

class PackageService final : public v1::PackageService::Service {
 public:
  // `store` outlives it.
  PackageService(const PackageServiceOptions& options, PackageStore* store)
      : options_(options),
        store_(store),
        uploads_("uploads", options.uploads),
        fetches_("fetches of packages", options.fetches) {}

  grpc::Status UploadPackage(grpc::ServerContext* context,
                             grpc::ServerReader<v1::UploadPackageRequest>* in,
                             v1::UploadPackageResponse* response) override;
  grpc::Status FetchPackage(
      grpc::ServerContext* context, const v1::FetchPackageRequest* request,
      grpc::ServerWriter<v1::FetchPackageResponse>* out) override;

  // Ends the calls that stand still; call it now and then.
  void CancelIdle(MonoTime now);

 private:
  const PackageServiceOptions options_;
  PackageStore* const store_;
  Turns uploads_;
  Turns fetches_;
};

}  // namespace lockstep

#endif  // LOCKSTEP_SERVER_SERVICE_PACKAGE_SERVICE_H_
