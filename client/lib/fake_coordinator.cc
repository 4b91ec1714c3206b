#include "client/lib/fake_coordinator.h"

#include <grpcpp/server_context.h>

#include <algorithm>
#include <utility>

#include "common/rpc/server.h"
#include "common/rpc/status_conversion.h"
#include "lockstep/v1/cluster.grpc.pb.h"
#include "lockstep/v1/job.grpc.pb.h"
#include "lockstep/v1/package.grpc.pb.h"

namespace lockstep::cli {
namespace {

constexpr Duration kPollInterval = std::chrono::milliseconds(5);

Status FirstError(FakeAnswers* answers) {
  if (answers->errors.empty()) return OkStatus();
  Status error = answers->errors.front();
  answers->errors.erase(answers->errors.begin());
  return error;
}

class Shared {
 public:
  void Update(const std::function<void(FakeAnswers*)>& change) {
    MutexLock lock(&mu_);
    change(&answers_);
  }
  FakeAnswers Copy() const {
    MutexLock lock(&mu_);
    return answers_;
  }
  Status TakeError() {
    MutexLock lock(&mu_);
    return FirstError(&answers_);
  }
  bool TakeBreak() {
    MutexLock lock(&mu_);
    return answers_.breaks > 0 && answers_.breaks-- > 0;
  }
  // Waits until the caller leaves or the test ends it.
  void Idle(grpc::ServerContext* context) {
    MutexLock lock(&mu_);
    while (!context->IsCancelled() &&
           (answers_.endless || answers_.stalls_uploads)) {
      never_.WaitFor(&mu_, kPollInterval);
    }
  }

 private:
  mutable Mutex mu_;
  CondVar never_;
  FakeAnswers answers_ ABSL_GUARDED_BY(mu_);
};

grpc::Status NoJob(const std::string& name) {
  return ToGrpc(NotFound("there is no job {}", name));
}

class FakeJobs final : public v1::JobService::Service {
 public:
  explicit FakeJobs(Shared* shared) : shared_(shared) {}

  grpc::Status SubmitJob(grpc::ServerContext*,
                         const v1::SubmitJobRequest* request,
                         v1::SubmitJobResponse* response) override {
    if (Status error = shared_->TakeError(); !error.ok()) return ToGrpc(error);
    if (request->has_training()) return SubmitTraining(*request, response);
    shared_->Update([&](FakeAnswers* a) {
      a->submits.push_back(*request);
      for (const v1::Job& job : a->jobs) {
        if (job.name() != request->spec().name()) continue;
        *response->mutable_job() = job;
        return;
      }
      v1::Job* job = response->mutable_job();
      job->set_name(request->spec().name());
      *job->mutable_spec() = request->spec();
      job->set_state(v1::JOB_STATE_QUEUED);
      if (!request->validate_only()) {
        a->jobs.push_back(*job);
        return;
      }
      v1::TaskStatus* task = response->add_placement();
      task->set_type(v1::TASK_TYPE_CHIEF);
      task->set_node("host-a");
    });
    return grpc::Status::OK;
  }

  grpc::Status UpdateJob(grpc::ServerContext*,
                         const v1::UpdateJobRequest* request,
                         v1::Job* response) override {
    if (Status error = shared_->TakeError(); !error.ok()) return ToGrpc(error);
    bool found = false;
    shared_->Update([&](FakeAnswers* a) {
      a->updates.push_back(*request);
      for (v1::Job& job : a->jobs) {
        if (job.name() != request->name()) continue;
        auto& labels = *job.mutable_spec()->mutable_labels();
        if (request->clear_labels()) labels.clear();
        for (const std::string& key : request->remove_labels()) {
          labels.erase(key);
        }
        for (const auto& [key, value] : request->labels()) labels[key] = value;
        *response = job;
        found = true;
      }
    });
    return found ? grpc::Status::OK : NoJob(request->name());
  }

  grpc::Status GetJob(grpc::ServerContext*, const v1::GetJobRequest* request,
                      v1::Job* response) override {
    grpc::Status status = NoJob(request->name());
    // At once, because answers set after counting belong to the next call.
    shared_->Update([&](FakeAnswers* a) {
      ++a->gets;
      if (const Status error = FirstError(a); !error.ok()) {
        status = ToGrpc(error);
        return;
      }
      for (const v1::Job& job : a->jobs) {
        if (job.name() != request->name()) continue;
        *response = job;
        status = grpc::Status::OK;
        return;
      }
    });
    return status;
  }

  grpc::Status ListJobs(grpc::ServerContext*,
                        const v1::ListJobsRequest* request,
                        v1::ListJobsResponse* response) override {
    shared_->Update([&](FakeAnswers* a) { a->lists.push_back(*request); });
    if (Status error = shared_->TakeError(); !error.ok()) return ToGrpc(error);
    const FakeAnswers answers = shared_->Copy();
    // Pages are small, so that tests see several.
    size_t begin = 0;
    if (!request->page_token().empty()) begin = stoul(request->page_token());
    const size_t end = std::min(begin + 2, answers.jobs.size());
    for (size_t i = begin; i < end; ++i) {
      const auto& states = request->states();
      if (states.empty() || std::find(states.begin(), states.end(),
                                      answers.jobs[i].state()) != states.end())
        *response->add_jobs() = answers.jobs[i];
    }
    if (end < answers.jobs.size()) {
      response->set_next_page_token(std::to_string(end));
    }
    return grpc::Status::OK;
  }

  grpc::Status WatchJobs(
      grpc::ServerContext* context, const v1::WatchJobsRequest* request,
      grpc::ServerWriter<v1::WatchJobsResponse>* writer) override {
    shared_->Update([&](FakeAnswers* a) { a->watches.push_back(*request); });
    if (Status error = shared_->TakeError(); !error.ok()) return ToGrpc(error);
    const FakeAnswers answers = shared_->Copy();
    const bool breaks = shared_->TakeBreak();
    int sent = 0;
    for (const v1::WatchJobsResponse& message : answers.watch) {
      if (breaks && sent++ == answers.break_after) {
        return ToGrpc(answers.break_error);
      }
      if (message.has_job() && request->resource_version() > 0 &&
          message.job().resource_version() <= request->resource_version()) {
        continue;
      }
      writer->Write(message);
    }
    if (answers.endless) shared_->Idle(context);
    return grpc::Status::OK;
  }

  grpc::Status CancelJob(grpc::ServerContext*,
                         const v1::CancelJobRequest* request,
                         v1::Job* response) override {
    if (Status error = shared_->TakeError(); !error.ok()) return ToGrpc(error);
    bool found = false;
    shared_->Update([&](FakeAnswers* a) {
      for (v1::Job& job : a->jobs) {
        if (job.name() != request->name()) continue;
        a->cancelled.push_back(job.name());
        job.set_state(v1::JOB_STATE_CANCELLED);
        *response = job;
        found = true;
      }
    });
    return found ? grpc::Status::OK : NoJob(request->name());
  }

  grpc::Status DeleteJob(grpc::ServerContext*,
                         const v1::DeleteJobRequest* request,
                         v1::DeleteJobResponse*) override {
    if (Status error = shared_->TakeError(); !error.ok()) return ToGrpc(error);
    grpc::Status answer = NoJob(request->name());
    shared_->Update([&](FakeAnswers* a) {
      for (size_t i = 0; i < a->jobs.size(); ++i) {
        if (a->jobs[i].name() != request->name()) continue;
        if (a->jobs[i].state() < v1::JOB_STATE_SUCCEEDED) {
          answer = ToGrpc(FailedPrecondition("job {} has not ended: cancel it",
                                             request->name()));
          return;
        }
        a->deleted.push_back(request->name());
        a->jobs.erase(a->jobs.begin() + static_cast<ptrdiff_t>(i));
        answer = grpc::Status::OK;
        return;
      }
    });
    return answer;
  }

  grpc::Status StreamLogs(
      grpc::ServerContext* context, const v1::StreamLogsRequest* request,
      grpc::ServerWriter<v1::StreamLogsResponse>* writer) override {
    shared_->Update(
        [&](FakeAnswers* a) { a->log_requests.push_back(*request); });
    if (Status error = shared_->TakeError(); !error.ok()) return ToGrpc(error);
    const FakeAnswers answers = shared_->Copy();
    const bool breaks = shared_->TakeBreak();
    int sent = 0;
    for (const v1::LogLine& line : answers.lines) {
      const auto& ranks = request->ranks();
      if (!ranks.empty() &&
          std::find(ranks.begin(), ranks.end(), line.rank()) == ranks.end()) {
        continue;
      }
      if (breaks && sent++ == answers.break_after) {
        return ToGrpc(answers.break_error);
      }
      v1::StreamLogsResponse message;
      *message.add_lines() = line;
      writer->Write(message);
    }
    if (answers.endless) shared_->Idle(context);
    return grpc::Status::OK;
  }

  grpc::Status ResizeJob(grpc::ServerContext*,
                         const v1::ResizeJobRequest* request,
                         v1::Job* response) override {
    if (Status error = shared_->TakeError(); !error.ok()) return ToGrpc(error);
    bool found = false;
    shared_->Update([&](FakeAnswers* a) {
      a->resizes.push_back(*request);
      for (v1::Job& job : a->jobs) {
        if (job.name() != request->name()) continue;
        job.set_wanted_tasks(request->tasks());
        *response = job;
        found = true;
      }
    });
    return found ? grpc::Status::OK : NoJob(request->name());
  }

  grpc::Status RestoreJob(grpc::ServerContext*,
                          const v1::RestoreJobRequest* request,
                          v1::Job* response) override {
    if (Status error = shared_->TakeError(); !error.ok()) return ToGrpc(error);
    bool found = false;
    shared_->Update([&](FakeAnswers* a) {
      a->restores.push_back(*request);
      for (v1::Job& job : a->jobs) {
        if (job.name() != request->name()) continue;
        *job.mutable_restore() = request->target();
        *response = job;
        found = true;
      }
    });
    return found ? grpc::Status::OK : NoJob(request->name());
  }
  grpc::Status RequestCheckpoint(
      grpc::ServerContext*, const v1::RequestCheckpointRequest* request,
      v1::RequestCheckpointResponse* response) override {
    if (Status error = shared_->TakeError(); !error.ok()) return ToGrpc(error);
    shared_->Update([&](FakeAnswers* a) {
      a->checkpoints.push_back(request->name());
      for (v1::Job& job : a->jobs) {
        if (job.name() != request->name() || !a->completes_checkpoints) {
          continue;
        }
        v1::Checkpoint* const checkpoint = job.mutable_last_checkpoint();
        checkpoint->set_step(checkpoint->step() + 1);
      }
    });
    response->mutable_directive()->set_id(7);
    response->mutable_directive()->set_kind(v1::DIRECTIVE_KIND_CHECKPOINT);
    return grpc::Status::OK;
  }

  grpc::Status ListFiles(grpc::ServerContext*,
                         const v1::ListFilesRequest* request,
                         v1::ListFilesResponse* response) override {
    if (Status error = shared_->TakeError(); !error.ok()) return ToGrpc(error);
    const FakeAnswers answers = shared_->Copy();
    const auto folder = answers.folders.find(
        fmt::format("{}/{}", request->rank(), request->path()));
    if (folder == answers.folders.end()) {
      return ToGrpc(
          NotFound("{} is not in the working directory", request->path()));
    }
    *response = folder->second;
    return grpc::Status::OK;
  }

  grpc::Status CollectEvidence(grpc::ServerContext*,
                               const v1::CollectEvidenceRequest* request,
                               v1::JobEvidence* response) override {
    if (Status error = shared_->TakeError(); !error.ok()) return ToGrpc(error);
    bool known = true;
    shared_->Update([&](FakeAnswers* a) {
      a->evidence_requests.push_back(*request);
      *response = request->kept() ? a->kept_evidence : a->evidence;
      known = !request->kept() || !response->verdict().empty();
    });
    if (known) return grpc::Status::OK;
    return ToGrpc(FailedPrecondition("no evidence of the job is kept"));
  }

  grpc::Status ReadFile(
      grpc::ServerContext*, const v1::ReadFileRequest* request,
      grpc::ServerWriter<v1::ReadFileResponse>* writer) override {
    constexpr size_t kPiece = 4;
    if (Status error = shared_->TakeError(); !error.ok()) return ToGrpc(error);
    const FakeAnswers answers = shared_->Copy();
    const auto file = answers.files.find(
        fmt::format("{}/{}", request->rank(), request->path()));
    if (file == answers.files.end()) {
      return ToGrpc(
          NotFound("{} is not in the working directory", request->path()));
    }
    size_t at = 0;
    do {
      if (answers.file_break > 0 && at >= answers.file_break) {
        return ToGrpc(Unavailable("the node is gone"));
      }
      v1::ReadFileResponse response;
      if (at == 0) {
        response.set_size(static_cast<int64_t>(file->second.size()));
      }
      response.set_data(file->second.substr(at, kPiece));
      writer->Write(response);
      at += kPiece;
    } while (at < file->second.size());
    return grpc::Status::OK;
  }

 private:
  grpc::Status SubmitTraining(const v1::SubmitJobRequest& request,
                              v1::SubmitJobResponse* response) {
    grpc::Status answer = grpc::Status::OK;
    const std::string& name = request.training().job_id();
    shared_->Update([&](FakeAnswers* a) {
      a->submits.push_back(request);
      *response = a->training_answer;
      for (const v1::Job& job : a->jobs) {
        if (job.name() != name) continue;
        answer = ToGrpc(AlreadyExists("there is a job {} already", name));
        return;
      }
      v1::Job* const job = response->mutable_job();
      job->set_name(name);
      if (!job->has_spec()) job->mutable_spec()->set_name(name);
      *job->mutable_training() = request.training();
      if (!a->keeps_training_state) job->set_state(v1::JOB_STATE_QUEUED);
      if (!request.validate_only()) a->jobs.push_back(*job);
    });
    return answer;
  }

  Shared* const shared_;
};

class FakeCluster final : public v1::ClusterService::Service {
 public:
  explicit FakeCluster(Shared* shared) : shared_(shared) {}

  grpc::Status ListNodes(grpc::ServerContext*, const v1::ListNodesRequest*,
                         v1::ListNodesResponse* response) override {
    if (Status error = shared_->TakeError(); !error.ok()) return ToGrpc(error);
    for (const v1::Node& node : shared_->Copy().nodes) {
      *response->add_nodes() = node;
    }
    return grpc::Status::OK;
  }

  grpc::Status GetNode(grpc::ServerContext*, const v1::GetNodeRequest* request,
                       v1::Node* response) override {
    for (const v1::Node& node : shared_->Copy().nodes) {
      if (node.name() != request->name()) continue;
      *response = node;
      return grpc::Status::OK;
    }
    return ToGrpc(NotFound("there is no node {}", request->name()));
  }

  grpc::Status DrainNode(grpc::ServerContext*,
                         const v1::DrainNodeRequest* request,
                         v1::Node* response) override {
    if (Status error = shared_->TakeError(); !error.ok()) return ToGrpc(error);
    return Change(request->name(), [&](FakeAnswers* a, v1::Node* node) {
      a->drains.push_back(*request);
      node->set_state(node->jobs_size() > 0 ? v1::NODE_STATE_DRAINING
                                            : v1::NODE_STATE_DRAINED);
      node->mutable_drain()->set_reason(request->reason());
      *response = *node;
      return grpc::Status::OK;
    });
  }

  grpc::Status UndrainNode(grpc::ServerContext*,
                           const v1::UndrainNodeRequest* request,
                           v1::Node* response) override {
    if (Status error = shared_->TakeError(); !error.ok()) return ToGrpc(error);
    return Change(request->name(), [&](FakeAnswers* a, v1::Node* node) {
      a->undrained.push_back(request->name());
      node->set_state(v1::NODE_STATE_READY);
      node->clear_drain();
      *response = *node;
      return grpc::Status::OK;
    });
  }

  grpc::Status ApproveNode(grpc::ServerContext*,
                           const v1::ApproveNodeRequest* request,
                           v1::Node* response) override {
    if (Status error = shared_->TakeError(); !error.ok()) return ToGrpc(error);
    return Change(request->name(), [&](FakeAnswers* a, v1::Node* node) {
      a->approved.push_back(request->name());
      if (node->has_offered()) *node->mutable_capacity() = node->offered();
      node->clear_offered();
      *response = *node;
      return grpc::Status::OK;
    });
  }

  grpc::Status CheckNode(grpc::ServerContext*,
                         const v1::CheckNodeRequest* request,
                         v1::CheckNodeResponse* response) override {
    if (Status error = shared_->TakeError(); !error.ok()) return ToGrpc(error);
    return Change(request->name(), [&](FakeAnswers* a, v1::Node*) {
      a->checked.push_back(*request);
      *response = a->gpu_checks;
      return grpc::Status::OK;
    });
  }

  grpc::Status ForgetNode(grpc::ServerContext*,
                          const v1::ForgetNodeRequest* request,
                          v1::ForgetNodeResponse* response) override {
    if (Status error = shared_->TakeError(); !error.ok()) return ToGrpc(error);
    return Change(request->name(), [&](FakeAnswers* a, v1::Node* node) {
      if (node->state() != v1::NODE_STATE_UNKNOWN) {
        return ToGrpc(FailedPrecondition("node {} is connected", node->name()));
      }
      a->forgotten.push_back(node->name());
      *response->mutable_jobs() = node->jobs();
      return grpc::Status::OK;
    });
  }

 private:
  grpc::Status Change(
      const std::string& name,
      const std::function<grpc::Status(FakeAnswers*, v1::Node*)>& change) {
    grpc::Status answer = ToGrpc(NotFound("there is no node {}", name));
    shared_->Update([&](FakeAnswers* a) {
      for (v1::Node& node : a->nodes) {
        if (node.name() != name) continue;
        answer = change(a, &node);
        return;
      }
    });
    return answer;
  }

  Shared* const shared_;
};

class FakePackages final : public v1::PackageService::Service {
 public:
  explicit FakePackages(Shared* shared) : shared_(shared) {}

  grpc::Status UploadPackage(
      grpc::ServerContext* context,
      grpc::ServerReader<v1::UploadPackageRequest>* reader,
      v1::UploadPackageResponse* response) override {
    if (Status error = shared_->TakeError(); !error.ok()) return ToGrpc(error);
    v1::UploadPackageRequest request;
    if (!reader->Read(&request) || !request.has_package()) {
      return ToGrpc(InvalidArgument("there is no package"));
    }
    const v1::Package package = request.package();
    bool breaks = false;
    shared_->Update([&](FakeAnswers* a) {
      a->uploads.push_back(package);
      response->set_existed(a->packages.count(package.digest()) > 0);
      breaks = a->upload_breaks > 0 && a->upload_breaks-- > 0;
    });
    if (response->existed()) return grpc::Status::OK;
    if (shared_->Copy().stalls_uploads) {
      shared_->Idle(context);
      return grpc::Status::CANCELLED;
    }
    std::string bytes;
    while (reader->Read(&request)) {
      bytes += request.data();
      shared_->Update([](FakeAnswers* a) { ++a->upload_pieces; });
      if (breaks) return ToGrpc(Unavailable("the coordinator is stopping"));
    }
    if (context->IsCancelled()) return grpc::Status::CANCELLED;
    if (static_cast<int64_t>(bytes.size()) != package.bytes()) {
      return ToGrpc(InvalidArgument("{} bytes came", bytes.size()));
    }
    shared_->Update(
        [&](FakeAnswers* a) { a->packages[package.digest()] = bytes; });
    return grpc::Status::OK;
  }

 private:
  Shared* const shared_;
};

}  // namespace

struct FakeCoordinator::Impl {
  Shared shared;
  FakePackages packages{&shared};
  FakeJobs jobs{&shared};
  FakeCluster cluster{&shared};
  std::unique_ptr<RpcServer> server;  // Destroyed before the services.
};

FakeCoordinator::FakeCoordinator(std::unique_ptr<Impl> impl)
    : impl_(std::move(impl)) {}
FakeCoordinator::~FakeCoordinator() = default;

StatusOr<std::unique_ptr<FakeCoordinator>> FakeCoordinator::Start(
    const std::string& address) {
  auto impl = std::make_unique<Impl>();
  RpcServerOptions options;
  options.address = address;
  options.insecure_loopback = true;
  LOCKSTEP_ASSIGN_OR_RETURN(
      impl->server, RpcServer::Start(options, {&impl->jobs, &impl->cluster,
                                               &impl->packages}));
  return std::unique_ptr<FakeCoordinator>(new FakeCoordinator(std::move(impl)));
}

const std::string& FakeCoordinator::address() const {
  return impl_->server->address();
}

void FakeCoordinator::Update(const std::function<void(FakeAnswers*)>& change) {
  impl_->shared.Update(change);
}

FakeAnswers FakeCoordinator::Answers() const { return impl_->shared.Copy(); }

}  // namespace lockstep::cli
