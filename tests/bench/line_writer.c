// line_writer COUNT: that many numbered lines of 99 characters and a newline,
// as fast as stdout takes them.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  const long count = strtol(argv[1], NULL, 10);
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
