// What a test asks the module over the GPU in memory: the module has a GPU of
// its own. Found with dlsym.
#ifndef LOCKSTEP_WORKER_COLLECTIVE_NCCL_NCCL_FAKE_MODULE_H_
#define LOCKSTEP_WORKER_COLLECTIVE_NCCL_NCCL_FAKE_MODULE_H_

#include <cstddef>

extern "C" {

struct lockstep_fake_gpu {
  size_t bytes_in_use;
  int communicators_in_use;
  int wrong_threads;
};
// nccl_fake.h has what each of them is.
lockstep_fake_gpu lockstep_fake_gpu_now(void);
void lockstep_fake_gpu_hang_forming(int hang);
void* lockstep_fake_gpu_make_stream(void);
// Runs what is on the stream so far.
void lockstep_fake_gpu_run(void* stream);
}

#endif  // LOCKSTEP_WORKER_COLLECTIVE_NCCL_NCCL_FAKE_MODULE_H_
