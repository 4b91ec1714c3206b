#include "worker/trainer/environment.h"

#include <dlfcn.h>
#include <malloc.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <cstring>

namespace lockstep::worker::trainer {
namespace {

// A handler reaches nothing but what is static.
volatile std::sig_atomic_t caught_signal = 0;

void Catch(int signal) { caught_signal = signal; }

}  // namespace

void KeepFreedMemory() {
  ::mallopt(M_MMAP_THRESHOLD, 1 << 30);
  // 4 GiB do not fit its int: the largest that does, in whole pages.
  ::mallopt(M_TRIM_THRESHOLD, 0x7ffff000);
}

std::optional<std::string> WiderBlasCore(std::string_view core, bool avx512) {
  if (!avx512 || (core != "Zen" && core != "Haswell")) return std::nullopt;
  return "SkylakeX";
}

void PreferWideBlas(char** argv) {
  if (std::getenv("OPENBLAS_CORETYPE") != nullptr) return;
  using CoreName = char* (*)();
  const auto core = reinterpret_cast<CoreName>(
      ::dlsym(RTLD_DEFAULT, "openblas_get_corename"));
  if (core == nullptr) return;
  const bool avx512 =
      __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512cd") &&
      __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
  const auto wider = WiderBlasCore(core(), avx512);
  if (!wider || ::setenv("OPENBLAS_CORETYPE", wider->c_str(), 1) != 0) return;
  // It is chosen when the library is loaded. What cannot be started again goes
  // on as it is.
  ::execv("/proc/self/exe", argv);
  ::unsetenv("OPENBLAS_CORETYPE");
}

int ChooseThreads(int asked, const char* omp_num_threads, double cpus) {
  if (asked > 0) return asked;
  if (omp_num_threads != nullptr) {
    // "4", or "4,2" for nested regions.
    int threads = 0;
    const char* end = omp_num_threads + std::strlen(omp_num_threads);
    if (std::from_chars(omp_num_threads, end, threads).ec == std::errc() &&
        threads > 0) {
      return std::min(threads, 1024);
    }
  }
  if (cpus >= 1) return static_cast<int>(std::min(std::floor(cpus), 1024.0));
  return 1;
}

void SetBlasThreads(int threads) {
  using SetThreads = void (*)(int);
  if (auto set = reinterpret_cast<SetThreads>(
          ::dlsym(RTLD_DEFAULT, "openblas_set_num_threads"))) {
    set(threads);
  }
}

std::optional<std::string> SlowBlasWarning(std::string_view maps) {
  // Debian keeps each BLAS in a directory that bears its name, and the
  // reference one in "blas".
  const size_t blas = maps.find("/blas/libblas.so");
  if (blas == std::string_view::npos) return std::nullopt;
  return "this host has the reference BLAS, which trains more than ten times "
         "slower than OpenBLAS: install libopenblas0-pthread";
}

StopSignal::StopSignal() {
  caught_signal = 0;
  struct sigaction action = {};
  action.sa_handler = Catch;
  action.sa_flags = static_cast<int>(SA_RESETHAND) | SA_RESTART;
  ::sigaction(SIGTERM, &action, &old_term_);
  ::sigaction(SIGINT, &action, &old_int_);
}

StopSignal::~StopSignal() {
  ::sigaction(SIGTERM, &old_term_, nullptr);
  ::sigaction(SIGINT, &old_int_, nullptr);
}

int StopSignal::caught() const { return caught_signal; }

}  // namespace lockstep::worker::trainer
