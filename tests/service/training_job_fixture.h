// Jobs in AI Platform's words and packages of code, over the services.
#ifndef LOCKSTEP_TESTS_SERVICE_TRAINING_JOB_FIXTURE_H_
#define LOCKSTEP_TESTS_SERVICE_TRAINING_JOB_FIXTURE_H_

#include <memory>
#include <string>
#include <vector>

#include "common/base/hex.h"
#include "common/base/sha256.h"
#include "tests/service/fixture.h"

namespace lockstep::server {

class TrainingJobTest : public ServiceTest {
 protected:
  void SetUp() override {
    site_.runtimes = {{"tf2", {"/opt/tf2/bin/python3", false, {"2.*"}}}};
    site_.images = {{"gcr.io/", "registry.local/"}};
    site_.regions = {{"mars", {"", "a100"}}};
    site_.machines.machines["n1-standard-4"].request = {1, 1 << 20};
    ServiceTest::SetUp();
  }

  static v1::TrainingJob Container(const std::string& name) {
    v1::TrainingJob job;
    job.set_job_id(name);
    (*job.mutable_labels())["team"] = "vision";
    v1::TrainingInput* in = job.mutable_training_input();
    in->set_scale_tier("CUSTOM");
    in->set_region("us-central1");
    in->set_master_type("n1-standard-4");
    in->mutable_master_config()->set_image_uri("gcr.io/p/trainer:1");
    in->set_worker_type("n1-standard-4");
    in->set_worker_count(1);
    in->set_use_chief_in_tf_config(true);
    in->add_args("trainer/task.py");
    in->set_job_dir("/data/out");
    in->mutable_scheduling()->mutable_max_running_time()->set_seconds(7200);
    return job;
  }

  static v1::TrainingJob Module(const std::string& name) {
    v1::TrainingJob job;
    job.set_job_id(name);
    v1::TrainingInput* in = job.mutable_training_input();
    in->set_scale_tier("BASIC");
    in->add_package_uris("trainer.tar.gz");
    in->set_python_module("trainer.task");
    in->set_runtime_version("2.11");
    return job;
  }

  v1::SubmitJobRequest Request(const v1::TrainingJob& job) {
    v1::SubmitJobRequest request;
    request.set_request_id("training-" + std::to_string(++requests_));
    *request.mutable_training() = job;
    return request;
  }

  static v1::Package PackageOf(const std::string& bytes) {
    v1::Package package;
    package.set_digest("sha256:" + ToHex(Sha256(bytes)));
    package.set_bytes(static_cast<int64_t>(bytes.size()));
    package.set_format(v1::PACKAGE_FORMAT_TREE);
    package.set_file_name("trainer.tar.gz");
    return package;
  }

  // As user ann unless said; what is sent may differ from what was announced.
  StatusOr<v1::UploadPackageResponse> Upload(
      const v1::Package& package, const std::vector<std::string>& pieces,
      const std::shared_ptr<grpc::Channel>& channel = nullptr) {
    const auto stub =
        v1::PackageService::NewStub(channel ? channel : User("ann"));
    const auto context = Context();
    v1::UploadPackageResponse response;
    const auto writer = stub->UploadPackage(context.get(), &response);
    v1::UploadPackageRequest message;
    *message.mutable_package() = package;
    bool alive = writer->Write(message);
    for (const std::string& piece : pieces) {
      message.set_data(piece);
      alive = alive && writer->Write(message);
    }
    writer->WritesDone();
    const grpc::Status status = writer->Finish();
    if (!status.ok()) return FromGrpc(status);
    return response;
  }

  StatusOr<std::string> Fetch(const std::string& digest, int64_t offset = 0) {
    const auto stub = v1::PackageService::NewStub(Worker("node-a"));
    const auto context = Context();
    v1::FetchPackageRequest request;
    request.set_digest(digest);
    request.set_offset(offset);
    const auto reader = stub->FetchPackage(context.get(), request);
    std::string bytes;
    v1::FetchPackageResponse response;
    while (reader->Read(&response)) bytes += response.data();
    const grpc::Status status = reader->Finish();
    if (!status.ok()) return FromGrpc(status);
    return bytes;
  }

  StatusOr<v1::Job> Update(const v1::UpdateJobRequest& request,
                           const std::shared_ptr<grpc::Channel>& channel) {
    const auto stub = v1::JobService::NewStub(channel);
    return Answer<v1::Job>([&](auto* context, auto* response) {
      return stub->UpdateJob(context, request, response);
    });
  }

  bool NothingIncoming() {
    const auto names =
        RealFileSystem()->List(JoinPath(dir_, "packages/incoming"));
    return names.ok() && names->empty();
  }
};

}  // namespace lockstep::server

#endif  // LOCKSTEP_TESTS_SERVICE_TRAINING_JOB_FIXTURE_H_
