/* A program that is no Python and loads libpython itself: restarts the interpreter, with threads
 * in each; `daemon` leaves threads running over each end.
 *
 * `promoted`: its symbols are for everybody only once the interpreter runs, with threads.
 *
 * embed LIBPYTHON local|global|promoted ROUNDS joined|daemon */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char joined[] =
    "import threading\n"
    "done = []\n"
    "def work():\n"
    "    for n in range(2000): sum(range(20))\n"
    "    done.append(1)\n"
    "threads = [threading.Thread(target=work) for _ in range(4)]\n"
    "[t.start() for t in threads]\n"
    "[t.join() for t in threads]\n"
    "assert len(done) == 4\n";
static const char daemons[] =
    "import threading, time\n"
    "counts = [0] * 4\n"
    "def spin(n):\n"
    "    while True: counts[n] += 1\n"
    "for n in range(4): threading.Thread(target=spin, args=(n,), daemon=True).start()\n"
    "while min(counts) < 100: time.sleep(0)\n";

int main(int count, char **arguments) {
  if (count != 5) return 64;
  alarm(60);
  int mode = strcmp(arguments[2], "global") == 0 ? RTLD_GLOBAL : RTLD_LOCAL;
  void *python = dlopen(arguments[1], RTLD_NOW | mode);
  if (!python) {
    fprintf(stderr, "%s\n", dlerror());
    return 65;
  }
  void (*initialize)(int) = (void (*)(int))dlsym(python, "Py_InitializeEx");
  int (*finalize)(void) = (int (*)(void))dlsym(python, "Py_FinalizeEx");
  int (*run)(const char *, void *) =
      (int (*)(const char *, void *))dlsym(python, "PyRun_SimpleStringFlags");
  int rounds = atoi(arguments[3]);
  int with_daemons = strcmp(arguments[4], "daemon") == 0;
  for (int n = 0; n < rounds; n++) {
    initialize(1);
    if (run("import faulthandler; faulthandler.enable()\n", NULL)) return 69;
    if (strcmp(arguments[2], "promoted") == 0) {
      if (run(joined, NULL)) return 70;
      if (!dlopen(arguments[1], RTLD_NOW | RTLD_GLOBAL | RTLD_NOLOAD)) return 71;
    }
    if (run(joined, NULL)) return 66;
    if (with_daemons && run(daemons, NULL)) return 67;
    if (finalize()) return 68;
    /* Without this, threads that stock has not let go of yet find the next interpreter. */
    if (with_daemons) usleep(100000);
  }
  puts("ok");
  return 0;
}
