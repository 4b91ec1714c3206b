// Lists and reads files of tasks' working directories, for callers who see the
// job's details (visibility.h).
#include <algorithm>
#include <memory>
#include <optional>
#include <utility>

#include "common/model/resources.h"
#include "common/rpc/status_conversion.h"
#include "server/service/job_service.h"
#include "server/service/request.h"
#include "server/stream/stream_reactor.h"

namespace lockstep::server {
namespace {

constexpr size_t kMaxPath = 4096;

JobCheck ReaderCheck(JobReader reader) {
  return [reader = std::move(reader)](const Job& job) {
    return CheckSees(reader, job.spec.name, job.owner, "files");
  };
}

// Sends the node one query after the other, once the call is admitted.
class FileAsker {
 public:
  FileAsker(WorkFiles* files, const pki::Identity& caller, FileTarget target,
            StreamPeer* peer)
      : files_(files),
        target_(std::move(target)),
        peer_(peer),
        ticket_(files->limiter(), caller, peer) {}

  const FileTarget& target() const { return target_; }
  const WorkFilesOptions& options() const { return files_->options(); }
  // The reader has taken a message.
  void Progress() { ticket_.Progress(); }
  // Returns the answer to `query`. If it has not arrived, sets `*wait` to the
  // next step.
  std::optional<FileAnswer> Ask(const FileQuery& query, StreamStep* wait) {
    if (const auto admitted = ticket_.Poll(); !admitted || !admitted->ok()) {
      *wait = admitted ? StreamStep::End(*admitted)
                       : StreamStep::Sleep(ticket_.deadline());
      return std::nullopt;
    }
    if (!question_) question_.emplace(files_, target_.node, query, peer_);
    auto answer = question_->Take();
    if (!answer.ok()) {
      *wait = StreamStep::End(answer.status());
      return std::nullopt;
    }
    if (!*answer) {
      *wait = StreamStep::Sleep(question_->deadline());
      return std::nullopt;
    }
    question_.reset();
    return *std::move(answer);
  }

 private:
  WorkFiles* const files_;
  const FileTarget target_;
  StreamPeer* const peer_;
  AdmissionLimiter::Ticket ticket_;
  std::optional<WorkFiles::Question> question_;
};

class FileListing final : public StreamSource<v1::ListFilesResponse> {
 public:
  FileListing(WorkFiles* files, const pki::Identity& caller,
              const FileTarget& target, StreamPeer* peer)
      : asker_(files, caller, target, peer) {}

  StreamStep Next(v1::ListFilesResponse* message) override {
    StreamStep wait;
    const auto answer = asker_.Ask(asker_.target().query, &wait);
    if (!answer) return wait;
    for (const WorkFile& file : answer->entries) {
      *message->add_files() = ToProto(file);
    }
    message->set_truncated(answer->truncated);
    message->set_node(asker_.target().node);
    return StreamStep::End(OkStatus());
  }

 private:
  FileAsker asker_;
};

class FileReading final : public StreamSource<v1::ReadFileResponse> {
 public:
  FileReading(WorkFiles* files, const pki::Identity& caller,
              const FileTarget& target, StreamPeer* peer)
      : asker_(files, caller, target, peer) {}

  StreamStep Next(v1::ReadFileResponse* message) override {
    if (std::exchange(sent_, false)) asker_.Progress();
    if (begun_ && offset_ >= size_) return StreamStep::End(OkStatus());
    FileQuery query = asker_.target().query;
    query.range = {offset_, begun_ ? std::min(kMaxFileChunk, size_ - offset_)
                                   : kMaxFileChunk};
    StreamStep wait;
    auto answer = asker_.Ask(query, &wait);
    if (!answer) return wait;
    if (Status s = Take(&*answer, message); !s.ok()) {
      return StreamStep::End(std::move(s));
    }
    sent_ = true;
    return StreamStep::Send();
  }

 private:
  Status Take(FileAnswer* answer, v1::ReadFileResponse* message) {
    const std::string& path = asker_.target().query.path;
    if (!std::exchange(begun_, true)) {
      size_ = answer->size;
      LOCKSTEP_RETURN_IF_ERROR(CheckSize());
      message->set_size(size_);
      if (static_cast<int64_t>(answer->data.size()) > size_) {
        answer->data.resize(static_cast<size_t>(size_));
      }
    }
    const auto got = static_cast<int64_t>(answer->data.size());
    if (got == 0 && size_ > 0) {
      return Aborted(
          "{} became shorter while it was read: {} of {} bytes were sent; the "
          "program "
          "is writing it, so read it again later",
          path, offset_, size_);
    }
    message->set_data(std::move(answer->data));
    offset_ += got;
    return OkStatus();
  }
  Status CheckSize() const {
    const int64_t most = asker_.options().max_file_bytes;
    if (size_ <= most) return OkStatus();
    return WithReason(
        ResourceExhausted(
            "{} has {}; at most {} of a file can be read here "
            "(--max-file-bytes of the coordinator): copy it on node {}, or let "
            "the program write it to its output directory",
            asker_.target().query.path, FormatBytes(size_), FormatBytes(most),
            asker_.target().node),
        "FILE_TOO_LARGE");
  }

  FileAsker asker_;
  // The first answer, with the size, has arrived.
  bool begun_ = false;
  bool sent_ = false;
  int64_t size_ = 0;
  int64_t offset_ = 0;
};

}  // namespace

StatusOr<FileTarget> JobService::FindFile(
    const grpc::ServerContextBase& context, const std::string& name,
    int32_t rank, const std::string& path) {
  if (files_ == nullptr)
    return Unimplemented("this server does not serve files");
  LOCKSTEP_RETURN_IF_ERROR(CheckJobName(name));
  if (path.size() > kMaxPath) {
    return InvalidArgument("path: has {} bytes; at most {} are allowed",
                           path.size(), kMaxPath);
  }
  LOCKSTEP_ASSIGN_OR_RETURN(
      const ClusterQueries::FoundWork found,
      queries_->FindWork(name, rank, ReaderCheck(ReaderFor(context))));
  FileTarget target;
  target.node = found.site.node;
  target.query.job = name;
  target.query.job_uid = found.job_uid;
  target.query.type = found.site.type;
  target.query.index = found.site.index;
  target.query.path = path;
  return target;
}

grpc::ServerUnaryReactor* JobService::ListFiles(
    grpc::CallbackServerContext* context, const v1::ListFilesRequest* request,
    v1::ListFilesResponse* response) {
  const auto target =
      FindFile(*context, request->name(), request->rank(), request->path());
  if (!target.ok()) return Answer(context, ToGrpc(target.status()));
  return StartCall<WaitingReactor<v1::ListFilesResponse>>(
      context, pools_,
      [&](StreamPeer* peer) {
        return std::make_unique<FileListing>(files_, CallerOf(*context),
                                             *target, peer);
      },
      response);
}

grpc::ServerWriteReactor<v1::ReadFileResponse>* JobService::ReadFile(
    grpc::CallbackServerContext* context, const v1::ReadFileRequest* request) {
  const auto target =
      FindFile(*context, request->name(), request->rank(), request->path());
  if (!target.ok()) {
    return new RefusedStream<v1::ReadFileResponse>(target.status());
  }
  return StartCall<StreamReactor<v1::ReadFileResponse>>(
      context, pools_, [&](StreamPeer* peer) {
        return std::make_unique<FileReading>(files_, CallerOf(*context),
                                             *target, peer);
      });
}

}  // namespace lockstep::server
