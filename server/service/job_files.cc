// Lists and reads files of tasks' working directories, for a job's owner and
// admins.
#include <algorithm>

#include "common/model/names.h"
#include "common/model/resources.h"
#include "common/rpc/caller.h"
#include "common/rpc/status_conversion.h"
#include "server/service/job_service.h"
#include "server/service/request.h"

namespace lockstep {
namespace {

constexpr size_t kMaxPath = 4096;

Coordinator::MayChange ReaderCheck(const grpc::ServerContext& context) {
  return [caller = CallerOf(context)](const Job& job) {
    if (caller.IsAdmin() || OwnerName(caller) == job.owner) return OkStatus();
    return PermissionDenied(
        "job {} is of {}: only they and admins may read its files",
        job.spec.name, job.owner);
  };
}

}  // namespace

StatusOr<JobService::FileTarget> JobService::FindFile(
    const grpc::ServerContext& context, const std::string& name, int32_t rank,
    const std::string& path) {
  if (files_ == nullptr) return Unimplemented("this server reads no files");
  if (!IsJobName(name)) {
    return InvalidArgument(
        "name: must be a job's name ([A-Za-z][A-Za-z0-9_-]{{0,62}})");
  }
  if (path.size() > kMaxPath) {
    return InvalidArgument("path: has {} bytes; at most {} are taken",
                           path.size(), kMaxPath);
  }
  LOCKSTEP_ASSIGN_OR_RETURN(
      const Coordinator::FoundWork found,
      coordinator_->FindWork(name, rank, ReaderCheck(context)));
  FileTarget target;
  target.node = found.site.node;
  target.query.job = name;
  target.query.job_uid = found.job_uid;
  target.query.type = found.site.type;
  target.query.index = found.site.index;
  target.query.path = path;
  return target;
}

grpc::Status JobService::ListFiles(grpc::ServerContext* context,
                                   const v1::ListFilesRequest* request,
                                   v1::ListFilesResponse* response) {
  const auto target =
      FindFile(*context, request->name(), request->rank(), request->path());
  if (!target.ok()) return ToGrpc(target.status());
  Turns::Turn turn(files_->turns(), context);
  if (!turn.status().ok()) return ToGrpc(turn.status());
  const auto answer = files_->Ask(target->node, target->query);
  if (!answer.ok()) return ToGrpc(answer.status());
  for (const WorkFile& file : answer->entries) {
    *response->add_files() = ToProto(file);
  }
  response->set_truncated(answer->truncated);
  response->set_node(target->node);
  return grpc::Status::OK;
}

grpc::Status JobService::ReadFile(
    grpc::ServerContext* context, const v1::ReadFileRequest* request,
    grpc::ServerWriter<v1::ReadFileResponse>* writer) {
  const auto target =
      FindFile(*context, request->name(), request->rank(), request->path());
  if (!target.ok()) return ToGrpc(target.status());
  Turns::Turn turn(files_->turns(), context);
  if (!turn.status().ok()) return ToGrpc(turn.status());
  return ToGrpc(SendFile(*target, context, writer, &turn));
}

Status JobService::SendFile(const FileTarget& target,
                            grpc::ServerContext* context,
                            grpc::ServerWriter<v1::ReadFileResponse>* writer,
                            Turns::Turn* turn) {
  const int64_t most = files_->options().max_file_bytes;
  FileQuery query = target.query;
  int64_t size = 0;
  int64_t offset = 0;
  do {
    const int64_t length =
        offset == 0 ? kMaxFileChunk : std::min(kMaxFileChunk, size - offset);
    query.range = {offset, length};
    LOCKSTEP_ASSIGN_OR_RETURN(FileAnswer answer,
                              files_->Ask(target.node, query));
    v1::ReadFileResponse response;
    if (offset == 0) {
      size = answer.size;
      if (size > most) {
        return WithReason(
            ResourceExhausted(
                "{} has {}, and at most {} of a file are read here "
                "(--max_file_bytes of the coordinator): copy it on node {}, or "
                "let the program write it to its output directory",
                query.path, FormatBytes(size), FormatBytes(most), target.node),
            "FILE_TOO_LARGE");
      }
      response.set_size(size);
      if (static_cast<int64_t>(answer.data.size()) > size) {
        answer.data.resize(static_cast<size_t>(size));
      }
    }
    const auto got = static_cast<int64_t>(answer.data.size());
    if (got == 0 && size > 0) {
      return Aborted(
          "{} became shorter while it was read: {} of {} bytes were sent; it "
          "is "
          "being written, so read it again later",
          query.path, offset, size);
    }
    response.set_data(std::move(answer.data));
    if (context->IsCancelled() || !writer->Write(response)) {
      return Cancelled("the call was cancelled");
    }
    turn->Progress();
    offset += got;
  } while (offset < size);
  return OkStatus();
}

}  // namespace lockstep
