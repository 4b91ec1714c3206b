// hang_program DIR RANK HOW: all ranks wait for each other in all_reduce, but
// rank RANK does not: lock (it waits for itself), spin, left (it exits with 0),
// stop or reduce (it does not hang). DIR/ready-N exists once rank N is where it
// stays.
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <string>

namespace {

std::atomic<uint64_t> turns = 0;

void SayReady(const std::string& directory, const std::string& rank) {
  const int fd = open((directory + "/ready-" + rank).c_str(),
                      O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
  if (fd < 0) exit(3);
  close(fd);
}

}  // namespace

// Not inlined, and with something to do after the call, so that each is a
// frame.
__attribute__((noinline)) void all_reduce() {
  int fds[2];
  if (pipe2(fds, O_CLOEXEC) != 0) exit(4);
  char byte = 0;
  while (read(fds[0], &byte, 1) != 1) ++turns;
  ++turns;
}

__attribute__((noinline)) void wait_for_lock() {
  pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
  pthread_mutex_lock(&mutex);
  pthread_mutex_lock(&mutex);
  ++turns;
}

__attribute__((noinline)) void spin() {
  for (;;) ++turns;
}

int main(int argc, char** argv) {
  const char* const rank = getenv("RANK");
  if (argc != 4 || rank == nullptr) return 2;
  const std::string how = std::string(argv[2]) == rank ? argv[3] : "reduce";
  SayReady(argv[1], rank);
  if (how == "lock") wait_for_lock();
  if (how == "spin") spin();
  if (how == "left") return 0;
  all_reduce();
  return static_cast<int>(turns);
}
