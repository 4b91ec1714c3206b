/* MPI_Allreduce as the peer; settings come by mpirun. Variant 0 adds up in
 * place, 1 from one buffer to another. */
#include <mpi.h>

#include "tests/bench/peers/probe.h"

typedef struct {
  float* input;
  float* output;
} buffers;

static const float* reduce(void* self, const probe_case* c) {
  const buffers* b = (const buffers*)self;
  float* to = c->variant == 0 ? b->input : b->output;
  const void* from = c->variant == 0 ? MPI_IN_PLACE : b->input;
  const int error = MPI_Allreduce(from, to, (int)c->count, MPI_FLOAT, MPI_SUM,
                                  MPI_COMM_WORLD);
  return error == MPI_SUCCESS ? to : NULL;
}

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int rank = 0;
  int ranks = 1;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  probe p;
  int code = probe_begin_as(&p, argc, argv, rank, ranks);
  if (code == 0) {
    buffers b = {probe_allocate(probe_largest(&p)),
                 probe_allocate(probe_largest(&p))};
    code = b.input && b.output ? probe_run(&p, b.input, reduce, &b) : 1;
  }
  if (code != 0) MPI_Abort(MPI_COMM_WORLD, code);
  MPI_Finalize();
  return 0;
}
