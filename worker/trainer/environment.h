// Sets up the process of lockstep-train before it trains.
#ifndef LOCKSTEP_WORKER_TRAINER_ENVIRONMENT_H_
#define LOCKSTEP_WORKER_TRAINER_ENVIRONMENT_H_

#include <csignal>
#include <optional>
#include <string>
#include <string_view>

namespace lockstep::worker::trainer {

// First thing in main. glibc would give the large temporaries of a step back
// to the kernel and fault them in again in the next one: a quarter of the time
// of small models. Now it keeps them.
void KeepFreedMemory();

// Returns the kernels that OpenBLAS should use instead of those named `core`,
// if its version does not know that this processor has AVX-512; else no value.
// OpenBLAS before 0.3.22 uses the kernels of AMD's Zen 2, half as wide, on Zen
// 4 and later.
std::optional<std::string> WiderBlasCore(std::string_view core, bool avx512);

// Early in main: starts this program again, with OPENBLAS_CORETYPE in
// its environment, where that makes its matrix products faster. Returns where
// there is nothing to gain, or the user has chosen.
void PreferWideBlas(char** argv);

// Returns the number of threads for an operation: `asked`, else the value of
// `omp_num_threads` (from the environment, may be null), else whole `cpus`, at
// least 1. Two ranks that each use all cores are slower than one.
int ChooseThreads(int asked, const char* omp_num_threads, double cpus);

// OpenBLAS has threads of its own, besides LibTorch's. Does nothing without it.
void SetBlasThreads(int threads);

// Returns a sentence if the BLAS in this process is the slow reference one, by
// the files that are mapped; `maps` is the text of /proc/self/maps.
std::optional<std::string> SlowBlasWarning(std::string_view maps);

// While it lives, SIGTERM and SIGINT only set a flag, once; a second one ends
// the process as ever. At most one at a time.
class StopSignal {
 public:
  StopSignal();
  ~StopSignal();
  StopSignal(const StopSignal&) = delete;
  StopSignal& operator=(const StopSignal&) = delete;

  // The signal, or 0.
  int caught() const;

 private:
  struct sigaction old_term_ = {};
  struct sigaction old_int_ = {};
};

}  // namespace lockstep::worker::trainer

#endif  // LOCKSTEP_WORKER_TRAINER_ENVIRONMENT_H_
