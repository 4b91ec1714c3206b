/* What every side of an all-reduce benchmark does alike, in C and C++: the
 * procedure of a sample, and where it goes.
 *
 * Before each operation a rank fills its own buffer anew with rank + 1, noise
 * and the iteration's number, meets the others, reads the clock, reduces, and
 * reads the clock. Both readings go to the board, a file that all ranks of a
 * run map; who started them takes the last end minus the first start. What came
 * out of the last operation is compared with float64.
 *
 * Arguments that every probe takes:
 *   --rank R --ranks N (but those that mpirun starts) [--pin 1]
 *   --board FILE  --case BYTES:SAMPLES:BATCH:VARIANT ...
 * A sample of a case is BATCH operations, divided by it. A VARIANT is the
 * probe's own. Before the samples a tenth of them, and two, are run for
 * nothing. --pin: rank R stays on the R-th core.
 */
#ifndef LOCKSTEP_TESTS_BENCH_PEERS_PROBE_H_
#define LOCKSTEP_TESTS_BENCH_PEERS_PROBE_H_

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <fcntl.h>
#include <math.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum {
  PROBE_CASES = 64,
  PROBE_PERIOD = 1 << 14,
  PROBE_RANKS = 64,
  PROBE_SPINS = 2000,
};

typedef struct {
  int64_t start; /* CLOCK_MONOTONIC, nanoseconds */
  int64_t end;
} probe_sample;

/* The first page of the board; samples follow, [case][sample][rank]. */
typedef struct {
  uint32_t arrived;
  uint32_t pad0[15];
  uint32_t phase;
  uint32_t pad1[15];
  uint64_t wrong; /* a bit for each case whose result was wrong */
  uint64_t done;  /* ranks that have ended well */
  uint32_t finished[PROBE_CASES]; /* ranks that are through with a case */
} probe_board;

typedef struct {
  size_t count; /* floats */
  int samples;
  int batch;
  int variant;
} probe_case;

typedef struct {
  int rank;
  int ranks;
  probe_board* board;
  probe_sample* samples;
  probe_case cases[PROBE_CASES];
  int case_count;
  float* noise[PROBE_RANKS];
} probe;

/* Reduces `count` floats: case->variant says how. `self` is the caller's.
 * Returns where the result is, or null. */
typedef const float* (*probe_reduce)(void* self, const probe_case* c);

static inline int64_t probe_nanos(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * INT64_C(1000000000) + now.tv_nsec;
}

static inline int probe_parse_case(const char* text, probe_case* c) {
  unsigned long long bytes = 0;
  c->variant = 0;
  if (sscanf(text, "%llu:%d:%d:%d", &bytes, &c->samples, &c->batch,
             &c->variant) < 3) {
    return 0;
  }
  c->count = (size_t)(bytes / sizeof(float));
  return c->samples > 0 && c->batch > 0;
}

/* The value of "NAME VALUE" among the arguments, or `otherwise`. */
static inline const char* probe_argument(int argc, char** argv,
                                         const char* name,
                                         const char* otherwise) {
  for (int i = 1; i + 1 < argc; ++i) {
    if (strcmp(argv[i], name) == 0) return argv[i + 1];
  }
  return otherwise;
}

/* xorshift64*: the same numbers for everybody who knows the rank. */
static inline float* probe_noise(int rank) {
  float* noise = (float*)malloc(PROBE_PERIOD * sizeof(float));
  uint64_t x = 88172645463325252u + (uint64_t)rank * 977;
  for (int i = 0; i < PROBE_PERIOD; ++i) {
    x ^= x >> 12;
    x ^= x << 25;
    x ^= x >> 27;
    noise[i] = (float)(rank + 1) +
               (float)((x * 2685821657736338717u) >> 40) / (float)(1 << 24) -
               0.5f;
  }
  return noise;
}

/* Writes a time to a slot of a board of cluster_support.h. Whether it could. */
static inline int probe_post(const char* board, int64_t slot, int64_t time) {
  const int fd = open(board, O_RDWR | O_CLOEXEC);
  return pwrite(fd, &time, sizeof(time), slot * (off_t)sizeof(time)) ==
         (ssize_t)sizeof(time);
}

/* Keeps this thread and those it starts on the index-th allowed core. */
static inline void probe_pin(int index) {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  if (sched_getaffinity(0, sizeof(allowed), &allowed) != 0) return;
  int skip = index % CPU_COUNT(&allowed);
  for (int core = 0; core < CPU_SETSIZE; ++core) {
    if (!CPU_ISSET(core, &allowed) || skip-- > 0) continue;
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(core, &one);
    sched_setaffinity(0, sizeof(one), &one);
    return;
  }
}

/* 0, or what is wrong was written to stderr. */
static inline int probe_begin_as(probe* p, int argc, char** argv, int rank,
                                 int ranks) {
  memset(p, 0, sizeof(*p));
  p->rank = rank;
  p->ranks = ranks;
  for (int i = 1; i + 1 < argc; ++i) {
    if (strcmp(argv[i], "--case") != 0) continue;
    if (p->case_count == PROBE_CASES ||
        !probe_parse_case(argv[i + 1], &p->cases[p->case_count])) {
      fprintf(stderr, "no case: %s\n", argv[i + 1]);
      return 2;
    }
    ++p->case_count;
  }
  const char* path = probe_argument(argc, argv, "--board", NULL);
  if (path == NULL || p->case_count == 0 || ranks > PROBE_RANKS) {
    fprintf(stderr, "usage: --board FILE --case BYTES:SAMPLES:BATCH...\n");
    return 2;
  }
  const int watchdog = atoi(probe_argument(argc, argv, "--watchdog", "60"));
  alarm((unsigned)watchdog);
  const int fd = open(path, O_RDWR | O_CLOEXEC);
  size_t bytes = 4096;
  for (int i = 0; i < p->case_count; ++i) {
    bytes += (size_t)p->cases[i].samples * (size_t)ranks * sizeof(probe_sample);
  }
  void* memory =
      fd < 0 ? MAP_FAILED
             : mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (memory == MAP_FAILED) {
    perror(path);
    return 2;
  }
  close(fd);
  p->board = (probe_board*)memory;
  p->samples = (probe_sample*)((char*)memory + 4096);
  for (int r = 0; r < ranks; ++r) p->noise[r] = probe_noise(r);
  return 0;
}

/* As the rank that the arguments name. Pins before there are other threads. */
static inline int probe_begin(probe* p, int argc, char** argv) {
  const int rank = atoi(probe_argument(argc, argv, "--rank", "0"));
  const int ranks = atoi(probe_argument(argc, argv, "--ranks", "1"));
  if (atoi(probe_argument(argc, argv, "--pin", "0")) != 0) probe_pin(rank);
  return probe_begin_as(p, argc, argv, rank, ranks);
}

/* Spins for some microseconds, then lets others run: threads of the side that
 * is measured may still have work of the last operation. */
static inline void probe_barrier(probe* p) {
  const uint32_t phase = __atomic_load_n(&p->board->phase, __ATOMIC_ACQUIRE);
  if (__atomic_add_fetch(&p->board->arrived, 1, __ATOMIC_ACQ_REL) ==
      (uint32_t)p->ranks) {
    __atomic_store_n(&p->board->arrived, 0, __ATOMIC_RELAXED);
    __atomic_store_n(&p->board->phase, phase + 1, __ATOMIC_RELEASE);
    return;
  }
  int spins = 0;
  while (__atomic_load_n(&p->board->phase, __ATOMIC_ACQUIRE) == phase) {
    if (++spins > PROBE_SPINS) sched_yield();
  }
}

static inline void probe_fill(const probe* p, float* data, size_t count,
                              int iteration) {
  const float* noise = p->noise[p->rank];
  const float shift = (float)(iteration & 15);
  for (size_t i = 0; i < count; i += PROBE_PERIOD) {
    size_t n = PROBE_PERIOD;
    if (count - i < n) n = count - i;
    for (size_t k = 0; k < n; ++k) data[i + k] = noise[k] + shift;
  }
}

static inline int probe_is_sum(const probe* p, const float* data, size_t count,
                               int iteration) {
  const float shift = (float)(iteration & 15);
  for (size_t i = 0; i < count; ++i) {
    double sum = 0;
    for (int r = 0; r < p->ranks; ++r) {
      sum += (double)(p->noise[r][i % PROBE_PERIOD] + shift);
    }
    if (!(fabs(data[i] - sum) <= p->ranks * 6e-8 * fabs(sum))) return 0;
  }
  return 1;
}

/* Runs one case into `samples`, its part of the board. `data` is where the
 * input goes. 0 when an operation failed. */
static inline int probe_run_case(probe* p, int index, float* data,
                                 probe_reduce reduce, void* self,
                                 probe_sample* samples) {
  const probe_case* c = &p->cases[index];
  const float* result = NULL;
  /* One more after a batch: its sums have grown out of what can be checked. */
  const int extra = c->batch > 1 ? 1 : 0;
  for (int i = -(c->samples / 10 + 2); i < c->samples + extra; ++i) {
    const int batch = i < c->samples ? c->batch : 1;
    probe_fill(p, data, c->count, i);
    probe_barrier(p);
    const int64_t start = probe_nanos();
    for (int k = 0; k < batch; ++k) {
      result = reduce(self, c);
      if (result == NULL) return 0;
    }
    const int64_t end = probe_nanos();
    if (i < 0 || i >= c->samples) continue;
    samples[(size_t)i * (size_t)p->ranks + (size_t)p->rank].start = start;
    samples[(size_t)i * (size_t)p->ranks + (size_t)p->rank].end = end;
  }
  if (!probe_is_sum(p, result, c->count, c->samples + extra - 1)) {
    __atomic_fetch_or(&p->board->wrong, UINT64_C(1) << index, __ATOMIC_RELAXED);
  }
  __atomic_fetch_add(&p->board->finished[index], 1, __ATOMIC_RELEASE);
  return 1;
}

/* All cases. The exit code. */
static inline int probe_run(probe* p, float* data, probe_reduce reduce,
                            void* self) {
  probe_sample* samples = p->samples;
  for (int i = 0; i < p->case_count; ++i) {
    if (!probe_run_case(p, i, data, reduce, self, samples)) return 1;
    samples += (size_t)p->cases[i].samples * (size_t)p->ranks;
  }
  __atomic_fetch_add(&p->board->done, 1, __ATOMIC_RELAXED);
  return 0;
}

static inline size_t probe_largest(const probe* p) {
  size_t largest = 1;
  for (int i = 0; i < p->case_count; ++i) {
    if (p->cases[i].count > largest) largest = p->cases[i].count;
  }
  return largest;
}

/* Zeroed pages, as a program that lives long has them. */
static inline float* probe_allocate(size_t count) {
  void* memory = mmap(NULL, count * sizeof(float), PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
  return memory == MAP_FAILED ? NULL : (float*)memory;
}

#endif /* LOCKSTEP_TESTS_BENCH_PEERS_PROBE_H_ */
