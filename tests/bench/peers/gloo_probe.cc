// The peer of collective_probe under srun: a Gloo mesh over a FileStore and a
// sum of one float.
//
//   gloo_probe STORE_DIRECTORY BOARD FIRST_SLOT
#include <fcntl.h>
#include <gloo/allreduce.h>
#include <gloo/math.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/transport/tcp/device.h>
#include <time.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <memory>

int main(int argc, char** argv) {
  const char* rank_text = getenv("SLURM_PROCID");
  const char* size_text = getenv("SLURM_NTASKS");
  if (argc != 4 || rank_text == nullptr || size_text == nullptr) return 2;
  const int rank = atoi(rank_text);
  const int size = atoi(size_text);
  gloo::rendezvous::FileStore store(argv[1]);
  auto device = gloo::transport::tcp::CreateDevice("127.0.0.1");
  auto context = std::make_shared<gloo::rendezvous::Context>(rank, size);
  context->connectFullMesh(store, device);
  float one = 1;
  gloo::AllreduceOptions options(context);
  options.setOutput(&one, 1);
  options.setReduceFunction(
      static_cast<void (*)(void*, const void*, const void*, size_t)>(
          &gloo::sum<float>));
  gloo::allreduce(options);
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  if (one != static_cast<float>(size)) return 1;
  const int64_t time = now.tv_sec * INT64_C(1000000000) + now.tv_nsec;
  const int board = open(argv[2], O_RDWR | O_CLOEXEC);
  const off_t at = (atoll(argv[3]) + rank) * static_cast<off_t>(sizeof(time));
  return pwrite(board, &time, sizeof(time), at) == sizeof(time) ? 0 : 1;
}
