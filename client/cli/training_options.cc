#include "client/cli/training_options.h"

namespace lockstep::cli {
namespace {

void AddReplica(const FlagGroup& group, const std::string& flag,
                const std::string& what, ReplicaFlags* f) {
  group.Add(flag + "-machine-type TYPE", &f->machine_type,
            "Machine of " + what + ", as n1-standard-8");
  if (flag != "--master") {
    group.Add(flag + "-count", &f->count, "How many of them", AtLeast(0));
  }
  group.Add(flag + "-accelerator TYPE,COUNT", &f->accelerator,
            "GPUs of each, as type=nvidia-tesla-t4,count=1");
  group.Add(flag + "-image-uri IMAGE", &f->image_uri,
            flag == "--master"
                ? "Container image to run (not with --runtime-version)"
                : "Container image of " + what + " (default: the master's)");
}

void AddProgram(const FlagGroup& group, TrainingFlags* f) {
  group.Add("--package-path DIR", &f->package_path,
            "Folder of a Python package, packed and uploaded");
  group.Add("--packages FILES", &f->packages,
            "sdists (.tar.gz) and wheels, as a.whl,b.tar.gz", SplitAt(','),
            MayRepeat);
  group.Add("--module-name MODULE", &f->module_name,
            "Module to run, as trainer.task");
  group.Add("--runtime-version VERSION", &f->runtime_version,
            "Interpreter version, as 2.11; see the site's table");
  group.Add("--runtime NAME", &f->runtime,
            "The interpreter by its name in the site's table");
  group.Add("--python-version VERSION", &f->python_version, "As 3.11");
  group.Add("--job-dir DIR", &f->job_dir,
            "Output path, passed to the program as --job-dir; a path that "
            "all hosts share, or a URL");
  group.Add("--use-chief-in-tf-config BOOL", &f->use_chief_in_tf_config,
            "Whether the first task is \"chief\" in TF_CONFIG, or \"master\" "
            "(default: true)",
            ValueOptional, WithDefault("true"));
  group.Add(
      "--env", &f->env,
      "NAME=VALUE for every task, or NAME with its value here; may be given "
      "several times",
      MayRepeat);
  group.Add("--ranks-per-task N", &f->ranks_per_task,
            "Processes of the master and each worker: a number, or gpu, one "
            "for each GPU (default: 1)");
}

void AddMachines(const FlagGroup& group, TrainingFlags* f) {
  group.Add("--scale-tier TIER", &f->scale_tier,
            "basic, standard-1, premium-1, basic-gpu, basic-tpu or custom; or "
            "one of the site's (default: basic)");
  AddReplica(group, "--master", "the master", &f->master);
  AddReplica(group, "--worker", "the workers", &f->worker);
  AddReplica(group, "--parameter-server", "the parameter servers",
             &f->parameter_server);
}

// Adds flags that are accepted for compatibility.
void AddTaken(const FlagGroup& group, TrainingFlags* f) {
  const auto text = [&](const char* name, std::string* value,
                        const char* what) { group.Add(name, value, what); };
  text("--staging-bucket", &f->staging_bucket,
       "Not used: packages go to the coordinator");
  text("--service-account", &f->service_account, "Not used");
  text("--network", &f->network, "Not used");
  group.Add("--enable-web-access", &f->enable_web_access, "Not used");
  text("--kms-key", &f->kms_key, "Rejected: nothing is encrypted");
  text("--kms-keyring", &f->kms_keyring, "For --kms-key");
  text("--kms-location", &f->kms_location, "For --kms-key");
  text("--kms-project", &f->kms_project, "For --kms-key");
  text("--tpu-tf-version", &f->tpu_tf_version, "Rejected: there are no TPUs");
  text("--project", &f->project, "Not used");
  text("--account", &f->account, "Not used");
  text("--verbosity", &f->verbosity, "Not used");
  group.Add("-q,--quiet", &f->quiet, "Not used: there are no prompts");
}

}  // namespace

void AddTrainingOptions(Command* command, TrainingFlags* f, bool plan) {
  command->Add("name NAME", &f->job,
               "The job's name: a letter, then letters, digits, _ or -; unique "
               "for ever",
               Required);
  command->Add("--config FILE", &f->config,
               "AI Platform's Job in YAML or JSON; flags override it");
  command->Add("--region", &f->region,
               "Region, which the site's table maps to nodes");
  command->Add("--labels KEY=VALUE", &f->labels, "As team=vision,stage=test",
               SplitAt(','), MayRepeat);
  command->Add("--strict", &f->strict,
               "Reject flags without effect instead of printing notes");
  // `plan` accepts the same command line and ignores these.
  const auto flag = [&](const char* name, bool* value, const char* what) {
    command->Add(name, value, what, HiddenIf(plan));
  };
  flag("--dry-run", &f->dry_run,
       "Check the job and show its placement; submit nothing");
  flag("--stream-logs", &f->stream_logs, "Show its lines until it ends");
  flag("--async", &f->async,
       "Deprecated: it is the default without --stream-logs");
  AddProgram(command->Group("Program"), f);
  AddMachines(command->Group("Machines"), f);
  AddTaken(command->Group("Accepted for gcloud compatibility"), f);
}

}  // namespace lockstep::cli
