/* Says whether the kernel started it as a set-uid program and whether the library was loaded. */
#include <stdio.h>
#include <string.h>
#include <sys/auxv.h>

int main(void) {
  char line[4096];
  int loaded = 0;
  FILE *maps = fopen("/proc/self/maps", "r");
  while (maps && fgets(line, sizeof line, maps)) loaded |= strstr(line, "libdeconvoy") != NULL;
  printf("secure=%d loaded=%d\n", getauxval(AT_SECURE) != 0, loaded);
  return 0;
}
