#include "tests/bench/front_door.h"

#include <signal.h>

#include <thread>

#include "common/base/file.h"

namespace lockstep {
namespace {

constexpr char kMachine[] = "bench";

std::string SiteTable(double cpus,
                      const std::map<std::string, std::string>& runtimes) {
  std::string text =
      fmt::format("machines:\n  {}: {{cpus: {:g}, memory: {}}}\nruntimes:\n",
                  kMachine, cpus, kBenchMachineBytes >> 20);
  for (const auto& [name, python] : runtimes) {
    text += fmt::format("  {}: {{python: {}}}\n", name, python);
  }
  return text;
}

size_t Count(const std::string& text, std::string_view part) {
  size_t count = 0;
  for (size_t at = text.find(part); at != text.npos;
       at = text.find(part, at + part.size())) {
    ++count;
  }
  return count;
}

// How often the coordinator has said that it read its tables again.
size_t Reloads(const std::string& log) {
  return Count(RealFileSystem()->Read(log).value_or(""),
               "tables and prices were read again");
}

}  // namespace

Status UseBenchSite(BenchCluster* bench, double cpus,
                    const std::map<std::string, std::string>& runtimes) {
  LocalCluster* const cluster = bench->cluster();
  const std::string log = cluster->layout().Log("coordinator");
  const size_t before = Reloads(log);
  LOCKSTEP_RETURN_IF_ERROR(RealFileSystem()->WriteAtomic(
      cluster->layout().MachinesFile(), SiteTable(cpus, runtimes)));
  LOCKSTEP_RETURN_IF_ERROR(cluster->Kill("coordinator", SIGHUP));
  for (int i = 0; i < 1000; ++i) {
    if (Reloads(log) > before) return OkStatus();
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return DeadlineExceeded("the coordinator has not read its table after 10 s");
}

StatusOr<std::string> WriteTrainer(const std::string& dir) {
  const std::string folder = JoinPath(dir, "trainer");
  LOCKSTEP_RETURN_IF_ERROR(RealFileSystem()->MakeDirs(folder));
  for (const auto& [name, text] : {std::pair("__init__.py", ""),
                                   std::pair("task.py", "print('here')\n")}) {
    LOCKSTEP_RETURN_IF_ERROR(
        RealFileSystem()->WriteAtomic(JoinPath(folder, name), text));
  }
  return folder;
}

v1::Package PackageMessage(const PackedPackage& packed) {
  v1::Package message;
  message.set_digest(packed.package.digest);
  message.set_bytes(packed.package.bytes);
  message.set_format(v1::PACKAGE_FORMAT_TREE);
  message.set_file_name(packed.package.file_name);
  return message;
}

Status Upload(Client* client, const PackedPackage& packed) {
  return client
      ->UploadPackage(
          PackageMessage(packed),
          [&](uint64_t offset, char* buffer, size_t size) {
            return ReadPackage(packed, offset, buffer, size);
          },
          {}, nullptr)
      .status();
}

v1::TrainingJob BenchTraining(const std::string& name,
                              const v1::Package& package,
                              const std::string& runtime, int workers,
                              const std::vector<std::string>& args) {
  v1::TrainingJob job;
  job.set_job_id(name);
  v1::TrainingInput* const input = job.mutable_training_input();
  input->set_scale_tier("CUSTOM");
  input->set_master_type(kMachine);
  if (workers > 0) {
    input->set_worker_type(kMachine);
    input->set_worker_count(workers);
  }
  input->add_package_uris(package.file_name());
  input->set_python_module("trainer.task");
  for (const std::string& word : args) input->add_args(word);
  job.mutable_lockstep()->set_runtime(runtime);
  job.mutable_lockstep()->mutable_restart()->set_budget(0);
  return job;
}

}  // namespace lockstep
