// Says when it began and who it is, and stays until it is killed: each start
// of a gang of two fills the next four slots of a board that the benchmark
// maps too.
//
//   restart_probe BOARD FIRST_SLOT
//
// The n-th start of rank R writes its time to slot FIRST + 4 n + R and then
// its pid to slot FIRST + 4 n + 2 + R. Static, so that no loader runs before.
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

int main(int argc, char** argv) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  const char* rank = getenv("RANK");
  if (argc != 3 || rank == NULL) return 2;
  const int fd = open(argv[1], O_RDWR | O_CLOEXEC);
  if (fd < 0) return 3;
  const off_t size = lseek(fd, 0, SEEK_END);
  int64_t* board = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (board == MAP_FAILED) return 5;
  const int64_t time = now.tv_sec * INT64_C(1000000000) + now.tv_nsec;
  for (long slot = strtol(argv[2], NULL, 10) + strtol(rank, NULL, 10);
       slot >= 0 && (slot + 3) * (off_t)sizeof(int64_t) <= size; slot += 4) {
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
