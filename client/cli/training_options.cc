#include "client/cli/training_options.h"

#include <CLI/CLI.hpp>

#include "client/cli/plan.h"

namespace lockstep {
namespace {

void AddReplica(CLI::App* app, const std::string& flag, const std::string& what,
                ReplicaFlags* f, const char* group) {
  app->add_option(flag + "-machine-type", f->machine_type,
                  "Machine of " + what + ", as n1-standard-8")
      ->type_name("TYPE")
      ->group(group);
  if (flag != "--master") {
    app->add_option(flag + "-count", f->count, "How many of them")
        ->check(AtLeast(0))
        ->group(group);
  }
  app->add_option(flag + "-accelerator", f->accelerator,
                  "GPUs of each, as type=nvidia-tesla-t4,count=1")
      ->type_name("TYPE,COUNT")
      ->group(group);
  app->add_option(
         flag + "-image-uri", f->image_uri,
         flag == "--master"
             ? "Container image to run (not with --runtime-version)"
             : "Container image of " + what + " (default: the master's)")
      ->type_name("IMAGE")
      ->group(group);
}

void AddProgram(CLI::App* app, TrainingFlags* f) {
  const char* const group = "Program";
  app->add_option("--package-path", f->package_path,
                  "Folder of a Python package, packed and uploaded")
      ->type_name("DIR")
      ->group(group);
  app->add_option("--packages", f->packages,
                  "sdists (.tar.gz) and wheels, as a.whl,b.tar.gz")
      ->delimiter(',')
      ->take_all()
      ->allow_extra_args(false)
      ->type_name("FILES")
      ->group(group);
  app->add_option("--module-name", f->module_name,
                  "Module to run, as trainer.task")
      ->type_name("MODULE")
      ->group(group);
  app->add_option("--runtime-version", f->runtime_version,
                  "Which interpreter, as 2.11: the site's table says where")
      ->type_name("VERSION")
      ->group(group);
  app->add_option("--runtime", f->runtime,
                  "The interpreter by its name in the site's table")
      ->type_name("NAME")
      ->group(group);
  app->add_option("--python-version", f->python_version, "As 3.11")
      ->type_name("VERSION")
      ->group(group);
  app->add_option("--job-dir", f->job_dir,
                  "Where it writes, handed to the program as --job-dir; a path "
                  "that all hosts see, or a URL")
      ->type_name("DIR")
      ->group(group);
  app->add_option("--use-chief-in-tf-config", f->use_chief_in_tf_config,
                  "Whether the first task is \"chief\" in TF_CONFIG, or "
                  "\"master\" (default: true)")
      ->expected(0, 1)
      ->default_str("true")
      ->type_name("BOOL")
      ->group(group);
  app->add_option("--env", f->env,
                  "NAME=VALUE for every task, or NAME as it is set here; may "
                  "be given several times")
      ->take_all()
      ->allow_extra_args(false)
      ->group(group);
  app->add_option("--ranks-per-task", f->ranks_per_task,
                  "Processes of the master and each worker: a number, or gpu, "
                  "one for each GPU (default: 1)")
      ->type_name("N")
      ->group(group);
}

void AddMachines(CLI::App* app, TrainingFlags* f) {
  const char* const group = "Machines";
  app->add_option("--scale-tier", f->scale_tier,
                  "basic, standard-1, premium-1, basic-gpu, basic-tpu or "
                  "custom; or one of the site's (default: basic)")
      ->type_name("TIER")
      ->group(group);
  AddReplica(app, "--master", "the master", &f->master, group);
  AddReplica(app, "--worker", "the workers", &f->worker, group);
  AddReplica(app, "--parameter-server", "the parameter servers",
             &f->parameter_server, group);
}

// Taken, so that command lines which have them work.
void AddTaken(CLI::App* app, TrainingFlags* f) {
  const char* const group = "Taken for gcloud's sake";
  const auto text = [&](const char* name, std::string* value,
                        const char* what) {
    app->add_option(name, *value, what)->group(group);
  };
  text("--staging-bucket", &f->staging_bucket,
       "Not used: packages go to the coordinator");
  text("--service-account", &f->service_account, "Not used");
  text("--network", &f->network, "Not used");
  app->add_flag("--enable-web-access", f->enable_web_access, "Not used")
      ->group(group);
  text("--kms-key", &f->kms_key, "Refused: nothing is encrypted here");
  text("--kms-keyring", &f->kms_keyring, "Of --kms-key");
  text("--kms-location", &f->kms_location, "Of --kms-key");
  text("--kms-project", &f->kms_project, "Of --kms-key");
  text("--tpu-tf-version", &f->tpu_tf_version, "Refused: there are no TPUs");
  text("--project", &f->project, "Not used");
  text("--account", &f->account, "Not used");
  text("--verbosity", &f->verbosity, "Not used");
  app->add_flag("-q,--quiet", f->quiet, "Not used: nothing is asked")
      ->group(group);
}

}  // namespace

void AddTrainingOptions(CLI::App* app, TrainingFlags* f, bool plan) {
  app->add_option("name", f->job,
                  "The job's name: a letter, then letters, digits, _ or -; "
                  "unique for ever")
      ->type_name("NAME")
      ->required();
  app->add_option("--config", f->config,
                  "AI Platform's Job in YAML or JSON; flags win over it")
      ->type_name("FILE");
  app->add_option("--region", f->region,
                  "Taken by the nodes that the site's table says");
  app->add_option("--labels", f->labels, "As team=vision,stage=test")
      ->delimiter(',')
      ->take_all()
      ->allow_extra_args(false)
      ->type_name("KEY=VALUE");
  app->add_flag("--strict", f->strict,
                "Refuse what has no effect here, rather than note it");
  // `plan` takes the same command line, and does nothing with these.
  const auto flag = [&](const char* name, bool* value, const char* what) {
    CLI::Option* const option = app->add_flag(name, *value, what);
    if (plan) option->group(kNoEffect);
  };
  flag("--dry-run", &f->dry_run,
       "Check it and show where it would go; submit nothing");
  flag("--stream-logs", &f->stream_logs, "Show its lines until it has ended");
  flag("--async", &f->async,
       "Deprecated: it is what happens without --stream-logs");
  AddProgram(app, f);
  AddMachines(app, f);
  AddTaken(app, f);
}

}  // namespace lockstep
