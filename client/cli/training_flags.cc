#include "client/cli/training_flags.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "client/cli/parse.h"
#include "client/cli/text.h"
#include "common/base/file.h"
#include "common/base/utf8.h"
#include "common/model/names.h"
#include "common/training/texts.h"
#include "common/training/translate.h"

namespace lockstep::cli {
namespace {

constexpr char kCustom[] = "CUSTOM";

// Converts "nvidia-tesla-t4" to the resource's form "NVIDIA_TESLA_T4".
std::string Constant(std::string text) {
  for (char& c : text) {
    c = c == '-' ? '_' : static_cast<char>(std::toupper(c));
  }
  return text;
}

bool ParseCount(const std::string& text, int64_t* count) {
  const auto [end, error] =
      std::from_chars(text.data(), text.data() + text.size(), *count);
  return error == std::errc() && end == text.data() + text.size() &&
         *count >= 0;
}

StatusOr<bool> ParseBool(const std::string& flag, std::string text) {
  for (char& c : text) c = static_cast<char>(std::tolower(c));
  if (text == "true" || text == "yes") return true;
  if (text == "false" || text == "no") return false;
  return InvalidArgument("{}: \"{}\" is neither true nor false", flag,
                         Printable(text));
}

class Builder {
 public:
  Builder(const TrainingFlags& flags, const TrainingJob& file,
          const CliEnvironment& env)
      : flags_(flags), file_(file), env_(env) {}

  StatusOr<TrainingRequest> Run() {
    LOCKSTEP_RETURN_IF_ERROR(CheckFlags());
    LOCKSTEP_RETURN_IF_ERROR(SetJob());
    LOCKSTEP_RETURN_IF_ERROR(SetReplicas());
    LOCKSTEP_RETURN_IF_ERROR(SetProgram());
    LOCKSTEP_RETURN_IF_ERROR(SetKey());
    LOCKSTEP_RETURN_IF_ERROR(SetLockstep());
    out_.job = Overlay(file_, over_);
    LOCKSTEP_RETURN_IF_ERROR(CheckMerged());
    NoteFlags();
    return std::move(out_);
  }

 private:
  Status CheckFlags() const {
    if (flags_.async && flags_.stream_logs) {
      return InvalidArgument(
          "--async and --stream-logs exclude each other: returning at once "
          "is the default without --stream-logs");
    }
    if (!IsJobName(flags_.job)) {
      return InvalidArgument(
          "\"{}\" is not a job name: use a letter, then letters, digits, "
          "\"_\" or \"-\", at most 63 in all",
          Printable(flags_.job));
    }
    return OkStatus();
  }

  Status SetJob() {
    over_.job_id = flags_.job;
    TrainingInput& in = over_.training_input;
    in.region = flags_.region;
    in.scale_tier = Constant(flags_.scale_tier);
    in.service_account = flags_.service_account;
    in.network = flags_.network;
    if (flags_.enable_web_access) in.enable_web_access = true;
    if (flags_.args) in.args = *flags_.args;
    if (!flags_.job_dir.empty()) {
      in.job_dir = flags_.job_dir;
      if (!HasScheme(in.job_dir) && in.job_dir[0] != '/') {
        in.job_dir = Absolute(in.job_dir);
        Note("--job-dir", flags_.job_dir + " is treated as " + in.job_dir);
      }
    }
    for (const std::string& text : flags_.labels) {
      const auto pair = ParsePair(text);
      if (!pair.ok()) return Annotate(pair.status(), "--labels");
      if (!over_.labels.emplace(pair->first, pair->second).second) {
        return InvalidArgument("--labels: {} is given twice",
                               Printable(pair->first));
      }
    }
    return OkStatus();
  }

  Status SetReplicas() {
    TrainingInput& in = over_.training_input;
    LOCKSTEP_RETURN_IF_ERROR(SetReplica("--master", flags_.master, &in.master));
    LOCKSTEP_RETURN_IF_ERROR(SetReplica("--worker", flags_.worker, &in.worker));
    LOCKSTEP_RETURN_IF_ERROR(SetReplica(
        "--parameter-server", flags_.parameter_server, &in.parameter_server));
    in.worker.config.tpu_tf_version = flags_.tpu_tf_version;
    if (!flags_.use_chief_in_tf_config.empty()) {
      LOCKSTEP_ASSIGN_OR_RETURN(
          in.use_chief_in_tf_config,
          ParseBool("--use-chief-in-tf-config", flags_.use_chief_in_tf_config));
    }
    return OkStatus();
  }

  static Status SetReplica(const std::string& flag, const ReplicaFlags& from,
                           ReplicaInput* to) {
    to->type = from.machine_type;
    to->count = from.count;
    to->config.image_uri = from.image_uri;
    if (from.accelerator.empty()) return OkStatus();
    auto accelerator = ParseAccelerator(from.accelerator);
    if (!accelerator.ok()) {
      return Annotate(accelerator.status(), flag + "-accelerator");
    }
    to->config.accelerator_config = *std::move(accelerator);
    return OkStatus();
  }

  Status SetProgram() {
    TrainingInput& in = over_.training_input;
    in.python_module = flags_.module_name;
    in.python_version = flags_.python_version;
    in.runtime_version = flags_.runtime_version;
    in.package_uris = flags_.packages;
    if (flags_.package_path.empty()) return OkStatus();
    if (HasScheme(flags_.package_path)) {
      return InvalidArgument(
          "--package-path {}: give a folder of this machine; URLs "
          "cannot be read",
          Printable(flags_.package_path));
    }
    out_.package_path = Absolute(flags_.package_path);
    return OkStatus();
  }

  // Any key works, because the coordinator rejects each by name.
  Status SetKey() {
    if (flags_.kms_key.empty()) {
      for (const auto& [flag, value] :
           {std::pair{"--kms-keyring", &flags_.kms_keyring},
            std::pair{"--kms-location", &flags_.kms_location},
            std::pair{"--kms-project", &flags_.kms_project}}) {
        if (value->empty()) continue;
        return InvalidArgument("{}: needs --kms-key, which is missing", flag);
      }
      return OkStatus();
    }
    const bool whole = flags_.kms_key.find('/') != std::string::npos;
    if (!whole && (flags_.kms_keyring.empty() || flags_.kms_location.empty())) {
      return InvalidArgument(
          "--kms-key {}: needs --kms-keyring and --kms-location, or is a whole "
          "name such as projects/P/locations/L/keyRings/R/cryptoKeys/K",
          Printable(flags_.kms_key));
    }
    over_.training_input.kms_key_name =
        whole ? flags_.kms_key
              : fmt::format(
                    "projects/{}/locations/{}/keyRings/{}/cryptoKeys/{}",
                    flags_.kms_project.empty() ? flags_.project
                                               : flags_.kms_project,
                    flags_.kms_location, flags_.kms_keyring, flags_.kms_key);
    return OkStatus();
  }

  Status SetLockstep() {
    LockstepInput& in = over_.lockstep;
    in.runtime = flags_.runtime;
    for (const std::string& text : flags_.env) {
      if (text.find('=') == std::string::npos) {
        if (!env_.variables.count(text)) {
          return InvalidArgument(
              "--env {}: the variable is not set here; give {}=VALUE",
              Printable(text), Printable(text));
        }
        in.env[text] = env_.Variable(text);
        continue;
      }
      const auto pair = ParsePair(text);
      if (!pair.ok()) return Annotate(pair.status(), "--env");
      in.env[pair->first] = pair->second;
    }
    for (const auto& [name, value] : in.env) {
      if (IsUtf8(value)) continue;
      return InvalidArgument("--env {}: its value here is not UTF-8", name);
    }
    if (flags_.ranks_per_task == "gpu") {
      in.ranks_per_gpu = true;
    } else if (!flags_.ranks_per_task.empty()) {
      int64_t ranks = 0;
      if (!ParseCount(flags_.ranks_per_task, &ranks) || ranks < 1) {
        return InvalidArgument(
            "--ranks-per-task: \"{}\" is neither a number of processes nor gpu",
            Printable(flags_.ranks_per_task));
      }
      in.ranks_per_task = ranks;
    }
    return OkStatus();
  }

  // Checks flags and file together.
  Status CheckMerged() const {
    const TrainingInput& in = out_.job.training_input;
    LOCKSTEP_RETURN_IF_ERROR(RefuseSearches(file_.training_input));
    if (in.scale_tier == kCustom && in.master.type.empty()) {
      return InvalidArgument(
          "--master-machine-type is required when the scale tier is CUSTOM "
          "(trainingInput.masterType in the file)");
    }
    LOCKSTEP_RETURN_IF_ERROR(
        CheckPair("--worker", "trainingInput.worker", in.worker));
    LOCKSTEP_RETURN_IF_ERROR(CheckPair("--parameter-server",
                                       "trainingInput.parameterServer",
                                       in.parameter_server));
    return CheckProgram();
  }

  static Status CheckPair(const std::string& flag, const std::string& field,
                          const ReplicaInput& role) {
    const bool has_count = role.count.value_or(0) > 0;
    if (has_count == !role.type.empty()) return OkStatus();
    return InvalidArgument(
        "{0}-machine-type and {0}-count must be given together ({1}Type and "
        "{1}Count in the file): {0}-{2}",
        flag, field,
        has_count    ? "machine-type is missing"
        : role.count ? "count is 0"
                     : "count is missing");
  }

  Status CheckProgram() const {
    const TrainingInput& in = out_.job.training_input;
    const bool image = !in.master.config.image_uri.empty();
    const bool packages =
        !in.package_uris.empty() || !out_.package_path.empty();
    if (image && !in.runtime_version.empty()) {
      return InvalidArgument(
          "--master-image-uri and --runtime-version exclude each other "
          "(trainingInput.masterConfig.imageUri and runtimeVersion in the "
          "file): an image brings its own runtime");
    }
    if (image && packages) {
      return InvalidArgument(
          "--master-image-uri and {} exclude each other: an image brings its "
          "own code",
          out_.package_path.empty() ? "--packages" : "--package-path");
    }
    if (!image && !packages) {
      return InvalidArgument(
          "there is nothing to run: give --master-image-uri IMAGE, or "
          "--package-path DIR (or --packages FILES) with --module-name MODULE");
    }
    if (packages && in.python_module.empty()) {
      return InvalidArgument(
          "--module-name is required with packages: the module to run, such as "
          "trainer.task");
    }
    return OkStatus();
  }

  void NoteFlags() {
    const auto unused = [&](const char* flag, bool given, const char* why) {
      if (given) Note(flag, why);
    };
    unused("--staging-bucket", !flags_.staging_bucket.empty(),
           "is not used: packages go to the coordinator");
    unused("--project", !flags_.project.empty(),
           "is not used: --context or --address chooses the cluster");
    unused("--account", !flags_.account.empty(),
           "is not used: your certificate gives your identity");
    unused("--quiet", flags_.quiet, "is not used: there are no prompts");
    unused("--verbosity", !flags_.verbosity.empty(), "is not used");
    unused("--async", flags_.async,
           "is deprecated: it is the default without --stream-logs");
  }

  void Note(const std::string& flag, const std::string& sentence) {
    out_.notes.push_back(flag + ": " + sentence);
  }
  std::string Absolute(const std::string& path) const {
    return JoinPath(env_.working_directory,
                    path.starts_with("./") ? path.substr(2) : path);
  }

  const TrainingFlags& flags_;
  const TrainingJob& file_;
  const CliEnvironment& env_;
  TrainingJob over_;
  TrainingRequest out_;
};

}  // namespace

StatusOr<AcceleratorConfig> ParseAccelerator(const std::string& text) {
  AcceleratorConfig out;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    const std::string part = text.substr(begin, end - begin);
    begin = end + 1;
    int64_t count = 0;
    if (part.starts_with("type=") && part.size() > 5 && out.type.empty()) {
      out.type = Constant(part.substr(5));
    } else if (part.starts_with("count=") && !out.count &&
               ParseCount(part.substr(6), &count)) {
      out.count = count;
    } else {
      return InvalidArgument(
          "\"{}\" is not of the form type=nvidia-tesla-t4,count=1",
          Printable(text));
    }
  }
  if (out.type.empty()) {
    return InvalidArgument("\"{}\" has no type=, such as type=nvidia-tesla-t4",
                           Printable(text));
  }
  if (!out.count) out.count = 1;
  return out;
}

StatusOr<TrainingRequest> BuildTraining(const TrainingFlags& flags,
                                        const TrainingJob& file,
                                        const CliEnvironment& env) {
  return Builder(flags, file, env).Run();
}

}  // namespace lockstep::cli
