// EnvironmentOptions, whose fields JobSpec and ClusterSpec both have.
#ifndef LOCKSTEP_COMMON_WIRE_ENVIRONMENT_FIELDS_H_
#define LOCKSTEP_COMMON_WIRE_ENVIRONMENT_FIELDS_H_

#include "common/model/limits.h"
#include "common/wire/fields.h"

namespace lockstep {

template <typename V>
void EnvironmentOptionsOf(V& v) {
  LOCKSTEP_FIELD_AS(environment_options.master_in_tf_config,
                    master_in_tf_config);
  LOCKSTEP_FIELD_AS(environment_options.slurm_environment, slurm_environment);
  LOCKSTEP_FIELD_AS(environment_options.tf_config_job, tf_config_job,
                    Bytes(kMaxArgument));
  LOCKSTEP_FIELD_AS(environment_options.empty_tf_config, empty_tf_config);
}

}  // namespace lockstep

#endif  // LOCKSTEP_COMMON_WIRE_ENVIRONMENT_FIELDS_H_
