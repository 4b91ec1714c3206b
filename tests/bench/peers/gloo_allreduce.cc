// Gloo as the peer.
//
//   gloo_allreduce --store DIR --algorithm NAME [--address IP] and what probe.h
//     says
//   gloo_allreduce once DIR BOARD FIRST_SLOT
//     The peer of collective_probe under srun: forms a mesh, sums one number
//     over all ranks and writes when that was done to slot RANK of the board.
//
// Algorithms of the new interface: ring (its default), bcube. Of the old one,
// with pairs that are synchronous and polled: old_ring, old_ring_chunked,
// old_halving_doubling, old_bcube.
#include <gloo/allreduce.h>
#include <gloo/allreduce_bcube.h>
#include <gloo/allreduce_halving_doubling.h>
#include <gloo/allreduce_ring.h>
#include <gloo/allreduce_ring_chunked.h>
#include <gloo/math.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/transport/tcp/device.h>

#include <exception>
#include <memory>
#include <string>

#include "tests/bench/peers/probe.h"

namespace {

std::shared_ptr<gloo::Context> Connect(const std::string& dir, int rank,
                                       int ranks, const char* address,
                                       bool sync) {
  gloo::rendezvous::FileStore store(dir);
  std::shared_ptr<gloo::transport::Device> device =
      gloo::transport::tcp::CreateDevice(address);
  auto context = std::make_shared<gloo::rendezvous::Context>(rank, ranks);
  context->connectFullMesh(store, device);
  for (int peer = 0; sync && peer < ranks; ++peer) {
    if (peer != rank) context->getPair(peer)->setSync(true, true);
  }
  return context;
}

class Gloo {
 public:
  Gloo(std::shared_ptr<gloo::Context> context, std::string algorithm,
       size_t largest)
      : context_(std::move(context)),
        algorithm_(std::move(algorithm)),
        data_(probe_allocate(largest)) {}

  float* data() { return data_; }

  const float* Reduce(const probe_case* c) {
    if (algorithm_.rfind("old_", 0) == 0) {
      // An object of its own for each size.
      if (prepared_ != c->count) {
        prepared_ = c->count;
        old_ = Old(c->count);
      }
      old_->run();
      return data_;
    }
    gloo::AllreduceOptions options(context_);
    options.setOutput(data_, c->count);
    using Function = void (*)(void*, const void*, const void*, size_t);
    options.setReduceFunction(static_cast<Function>(&gloo::sum<float>));
    options.setAlgorithm(algorithm_ == "bcube"
                             ? gloo::AllreduceOptions::Algorithm::BCUBE
                             : gloo::AllreduceOptions::Algorithm::RING);
    gloo::allreduce(options);
    return data_;
  }

 private:
  std::unique_ptr<gloo::Algorithm> Old(size_t count) {
    if (algorithm_ == "old_ring") return Make<gloo::AllreduceRing>(count);
    if (algorithm_ == "old_ring_chunked") {
      return Make<gloo::AllreduceRingChunked>(count);
    }
    if (algorithm_ == "old_bcube") return Make<gloo::AllreduceBcube>(count);
    return Make<gloo::AllreduceHalvingDoubling>(count);
  }
  template <template <typename> typename Algorithm>
  std::unique_ptr<gloo::Algorithm> Make(size_t count) {
    return std::make_unique<Algorithm<float>>(
        context_, std::vector<float*>{data_}, static_cast<int>(count));
  }

  const std::shared_ptr<gloo::Context> context_;
  const std::string algorithm_;
  float* const data_;
  std::unique_ptr<gloo::Algorithm> old_;
  size_t prepared_ = 0;
};

const float* Reduce(void* self, const probe_case* c) {
  return static_cast<Gloo*>(self)->Reduce(c);
}

int SumOnce(const char* dir, const char* board, int64_t first_slot) {
  const char* const rank = getenv("SLURM_PROCID");
  const char* const ranks = getenv("SLURM_NTASKS");
  if (rank == nullptr || ranks == nullptr) return 2;
  Gloo gloo(Connect(dir, atoi(rank), atoi(ranks), "127.0.0.1", false), "ring",
            1);
  *gloo.data() = 1;
  const probe_case one = {.count = 1, .samples = 1, .batch = 1, .variant = 0};
  const float sum = *gloo.Reduce(&one);
  const int64_t now = probe_nanos();
  if (sum != static_cast<float>(atoi(ranks))) return 1;
  return probe_post(board, first_slot + atoi(rank), now) ? 0 : 1;
}

int Main(int argc, char** argv) {
  if (argc == 5 && strcmp(argv[1], "once") == 0) {
    return SumOnce(argv[2], argv[3], atoll(argv[4]));
  }
  const std::string algorithm =
      probe_argument(argc, argv, "--algorithm", "ring");
  probe p;
  const int code = probe_begin(&p, argc, argv);
  if (code != 0) return code;
  Gloo gloo(Connect(probe_argument(argc, argv, "--store", "."), p.rank, p.ranks,
                    probe_argument(argc, argv, "--address", "127.0.0.1"),
                    algorithm.rfind("old_", 0) == 0),
            algorithm, probe_largest(&p));
  return gloo.data() == nullptr ? 1 : probe_run(&p, gloo.data(), Reduce, &gloo);
}

}  // namespace

int main(int argc, char** argv) {
  signal(SIGPIPE, SIG_IGN);
  try {
    const int code = Main(argc, argv);
    // Ends at once: peers that are still in a destructor must not wait for it.
    _exit(code);
  } catch (const std::exception& e) {
    fprintf(stderr, "gloo: %s\n", e.what());
    _exit(1);
  }
}
