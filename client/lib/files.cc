// Files of tasks' working directories, and evidence about ranks.
#include <algorithm>
#include <memory>

#include "client/lib/client.h"
#include "client/lib/client_impl.h"

namespace lockstep::cli {

StatusOr<v1::ListFilesResponse> Client::ListFiles(const std::string& name,
                                                  int32_t rank,
                                                  const std::string& path) {
  v1::ListFilesRequest request;
  request.set_name(name);
  request.set_rank(rank);
  request.set_path(path);
  return impl_->Call(impl_->jobs, &v1::JobService::Stub::ListFiles, request);
}

StatusOr<v1::JobEvidence> Client::CollectEvidence(
    const std::string& name, const std::vector<int32_t>& ranks) {
  v1::CollectEvidenceRequest request;
  request.set_name(name);
  request.mutable_ranks()->Add(ranks.begin(), ranks.end());
  return impl_->Call(impl_->jobs, &v1::JobService::Stub::CollectEvidence,
                     request);
}

StatusOr<v1::JobEvidence> Client::KeptEvidence(const std::string& name,
                                               int32_t attempt) {
  v1::CollectEvidenceRequest request;
  request.set_name(name);
  request.set_kept(true);
  request.set_attempt(attempt);
  return impl_->Call(impl_->jobs, &v1::JobService::Stub::CollectEvidence,
                     request);
}

Status Client::ReadFile(const std::string& name, int32_t rank,
                        const std::string& path, const FileSink& sink) {
  v1::ReadFileRequest request;
  request.set_name(name);
  request.set_rank(rank);
  request.set_path(path);
  grpc::ClientContext context;
  const auto reader = impl_->jobs->ReadFile(&context, request);
  v1::ReadFileResponse response;
  int64_t size = -1;
  int64_t got = 0;
  Status taken;
  while (taken.ok() && reader->Read(&response)) {
    if (size < 0) size = response.size();
    got += static_cast<int64_t>(response.data().size());
    taken = sink(size, response.data());
  }
  if (!taken.ok()) context.TryCancel();
  const grpc::Status end = reader->Finish();
  LOCKSTEP_RETURN_IF_ERROR(taken);
  const Status status = Convert(end, impl_->options.address);
  if (!status.ok() && got > 0) {
    return Annotate(
        status, fmt::format("{} ended after {} of {} bytes", path, got, size));
  }
  LOCKSTEP_RETURN_IF_ERROR(status);
  if (got != size) {
    return DataLoss("{} ended after {} of {} bytes", path, got,
                    std::max<int64_t>(size, 0));
  }
  return OkStatus();
}

}  // namespace lockstep::cli
