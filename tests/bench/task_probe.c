// What tasks of the benchmarks run. Static, so that no loader runs before.
//
//   task_probe [...] BOARD FIRST_SLOT
//       First instruction: writes the time to slot FIRST + RANK (or
//       SLURM_PROCID) of a board that the benchmark maps too. What stands
//       before is skipped, so that it can pose as an interpreter.
//   task_probe restart BOARD FIRST_SLOT
//       The same, with its pid, and stays until it is killed: the n-th start of
//       rank R of a gang of two writes the time to slot FIRST + 4 n + R and
//       then its pid to slot FIRST + 4 n + 2 + R.
//   task_probe lines COUNT
//       COUNT numbered lines of 99 characters, as fast as stdout takes them.
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

static int write_lines(long count) {
  char line[101];
  memset(line, 'x', sizeof(line));
  line[99] = '\n';
  for (long i = 0; i < count; ++i) {
    char number[17];
    snprintf(number, sizeof(number), "%015ld ", i);
    memcpy(line, number, 16);
    if (fwrite(line, 1, 100, stdout) != 100) return 1;
  }
  return fflush(stdout) == 0 ? 0 : 1;
}

int main(int argc, char** argv) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  const int64_t time = now.tv_sec * INT64_C(1000000000) + now.tv_nsec;
  if (argc < 3) return 2;
  if (strcmp(argv[1], "lines") == 0) {
    return write_lines(strtol(argv[2], NULL, 10));
  }
  const char* rank = getenv("RANK");
  if (rank == NULL) rank = getenv("SLURM_PROCID");
  long slot = strtol(argv[argc - 1], NULL, 10) +
              (rank == NULL ? 0 : strtol(rank, NULL, 10));
  const int fd = open(argv[argc - 2], O_RDWR | O_CLOEXEC);
  if (fd < 0) return 3;
  const off_t size = lseek(fd, 0, SEEK_END);
  if (slot < 0 || (slot + 1) * (off_t)sizeof(int64_t) > size) return 4;
  int64_t* board = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (board == MAP_FAILED) return 5;
  if (strcmp(argv[1], "restart") != 0) {
    __atomic_store_n(&board[slot], time, __ATOMIC_RELEASE);
    return 0;
  }
  for (; (slot + 3) * (off_t)sizeof(int64_t) <= size; slot += 4) {
    int64_t empty = 0;
    if (!__atomic_compare_exchange_n(&board[slot], &empty, time, false,
                                     __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) {
      continue;
    }
    __atomic_store_n(&board[slot + 2], (int64_t)getpid(), __ATOMIC_RELEASE);
    for (;;) pause();
  }
  return 4;
}
