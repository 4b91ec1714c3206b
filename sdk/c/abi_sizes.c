/* Prints the layout of every struct of the interface: a line for each field. */
#include <stdio.h>

#include "lockstep/lockstep.h"

#define STRUCT(name) printf("struct %s %zu\n", #name, sizeof(name))
#define FIELD(name, field) \
  printf("  %s.%s %zu\n", #name, #field, offsetof(name, field))

int main(void) {
  STRUCT(lockstep_error);
  FIELD(lockstep_error, code);
  FIELD(lockstep_error, reason);
  FIELD(lockstep_error, message);
  STRUCT(lockstep_store);
  FIELD(lockstep_store, context);
  FIELD(lockstep_store, put);
  FIELD(lockstep_store, get);
  STRUCT(lockstep_group_options);
  FIELD(lockstep_group_options, rank);
  FIELD(lockstep_group_options, world_size);
  FIELD(lockstep_group_options, label);
  FIELD(lockstep_group_options, backend);
  FIELD(lockstep_group_options, bind_address);
  FIELD(lockstep_group_options, key);
  FIELD(lockstep_group_options, key_bytes);
  FIELD(lockstep_group_options, forming_timeout_ns);
  FIELD(lockstep_group_options, operation_timeout_ns);
  FIELD(lockstep_group_options, store);
  STRUCT(lockstep_span);
  FIELD(lockstep_span, data);
  FIELD(lockstep_span, count);
  STRUCT(lockstep_operation);
  FIELD(lockstep_operation, collective);
  FIELD(lockstep_operation, type);
  FIELD(lockstep_operation, op);
  FIELD(lockstep_operation, root);
  FIELD(lockstep_operation, tag);
  FIELD(lockstep_operation, reserved);
  FIELD(lockstep_operation, input);
  FIELD(lockstep_operation, input_spans);
  FIELD(lockstep_operation, output);
  FIELD(lockstep_operation, output_spans);
  FIELD(lockstep_operation, input_splits);
  FIELD(lockstep_operation, output_splits);
  FIELD(lockstep_operation, timeout_ns);
  FIELD(lockstep_operation, cookie);
  STRUCT(lockstep_join_options);
  FIELD(lockstep_join_options, timeout_ns);
  FIELD(lockstep_join_options, recoverable);
  FIELD(lockstep_join_options, reserved);
  STRUCT(lockstep_session_info);
  FIELD(lockstep_session_info, job);
  FIELD(lockstep_session_info, role);
  FIELD(lockstep_session_info, output_directory);
  FIELD(lockstep_session_info, gpus);
  FIELD(lockstep_session_info, gpu_count);
  FIELD(lockstep_session_info, cpus);
  FIELD(lockstep_session_info, generation);
  FIELD(lockstep_session_info, checkpoint_interval_steps);
  FIELD(lockstep_session_info, checkpoint_keep);
  FIELD(lockstep_session_info, task_index);
  FIELD(lockstep_session_info, rank);
  FIELD(lockstep_session_info, world_size);
  FIELD(lockstep_session_info, local_rank);
  FIELD(lockstep_session_info, local_world_size);
  FIELD(lockstep_session_info, attempt);
  FIELD(lockstep_session_info, managed);
  STRUCT(lockstep_step);
  FIELD(lockstep_step, step);
  FIELD(lockstep_step, samples);
  FIELD(lockstep_step, loss);
  FIELD(lockstep_step, learning_rate);
  FIELD(lockstep_step, has_loss);
  FIELD(lockstep_step, has_learning_rate);
  STRUCT(lockstep_level);
  FIELD(lockstep_level, memory);
  FIELD(lockstep_level, spans);
  FIELD(lockstep_level, has_state);
  FIELD(lockstep_level, reserved);
  FIELD(lockstep_level, committed);
  FIELD(lockstep_level, small_part);
  FIELD(lockstep_level, small_bytes);
  FIELD(lockstep_level, digest);
  STRUCT(lockstep_leveled);
  FIELD(lockstep_leveled, committed);
  FIELD(lockstep_leveled, bytes);
  FIELD(lockstep_leveled, time_ns);
  FIELD(lockstep_leveled, received);
  FIELD(lockstep_leveled, source);
  FIELD(lockstep_leveled, small_bytes);
  return 0;
}
