// PackageService of proto/lockstep/v1/package.proto: streams of bytes to and
// from the PackageStore. Concurrency is limited, because a call holds a piece
// in memory and uses the disk.
#ifndef LOCKSTEP_SERVER_SERVICE_PACKAGE_SERVICE_H_
#define LOCKSTEP_SERVER_SERVICE_PACKAGE_SERVICE_H_

#include "common/base/clock.h"
#include "common/rpc/call_pools.h"
#include "lockstep/v1/package.grpc.pb.h"
#include "server/packages/package_store.h"
#include "server/stream/admission_limiter.h"

namespace lockstep::server {

struct PackageServiceOptions {
  AdmissionLimits uploads{16, 4};
  AdmissionLimits fetches{64, 16};
  // A call is ended if its peer neither sends nor reads for this time.
  Duration idle = std::chrono::seconds(60);
};

class PackageService final : public v1::PackageService::CallbackService {
 public:
  // Both outlive this object, and `store` outlives `pools`.
  PackageService(const PackageServiceOptions& options, CallPools* pools,
                 PackageStore* store)
      : options_(options),
        pools_(pools),
        store_(store),
        uploads_("uploads", options.uploads),
        fetches_("fetches of packages", options.fetches) {}

  grpc::ServerReadReactor<v1::UploadPackageRequest>* UploadPackage(
      grpc::CallbackServerContext* context,
      v1::UploadPackageResponse* response) override;
  grpc::ServerWriteReactor<v1::FetchPackageResponse>* FetchPackage(
      grpc::CallbackServerContext* context,
      const v1::FetchPackageRequest* request) override;

  // Ends idle calls. Call it periodically.
  void CancelIdle(MonoTime now);

 private:
  const PackageServiceOptions options_;
  CallPools* const pools_;
  PackageStore* const store_;
  AdmissionLimiter uploads_;
  AdmissionLimiter fetches_;
};

}  // namespace lockstep::server

#endif  // LOCKSTEP_SERVER_SERVICE_PACKAGE_SERVICE_H_
