// First instruction: writes the time to slot RANK (or SLURM_PROCID) of a
// board that the benchmark maps too. Static, so that no loader runs before.
//
//   launch_probe [...] BOARD FIRST_SLOT
//
// What stands before is skipped, so that it can pose as an interpreter that
// was told which module to run.
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

int main(int argc, char** argv) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  if (argc < 3) return 2;
  const char* rank = getenv("RANK");
  if (rank == NULL) rank = getenv("SLURM_PROCID");
  const long slot = strtol(argv[argc - 1], NULL, 10) +
                    (rank == NULL ? 0 : strtol(rank, NULL, 10));
  const int fd = open(argv[argc - 2], O_RDWR | O_CLOEXEC);
  if (fd < 0) return 3;
  const off_t size = lseek(fd, 0, SEEK_END);
  if (slot < 0 || (slot + 1) * (off_t)sizeof(int64_t) > size) return 4;
  int64_t* board = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (board == MAP_FAILED) return 5;
  __atomic_store_n(&board[slot], now.tv_sec * INT64_C(1000000000) + now.tv_nsec,
                   __ATOMIC_RELEASE);
  return 0;
}
