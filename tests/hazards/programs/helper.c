/* C code that the hazard programs load with ctypes. It declares what it needs of CPython itself:
 * not every interpreter comes with headers, and these functions have not changed since 3.8. */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

extern int PyGILState_Ensure(void);
extern void PyGILState_Release(int);
extern void *PyEval_SaveThread(void);
extern void PyEval_RestoreThread(void *);
extern void *PyThreadState_Get(void);
extern void *PyThreadState_Swap(void *);
extern void *Py_NewInterpreter(void);
extern void Py_EndInterpreter(void *);
extern int PyRun_SimpleStringFlags(const char *, void *);

typedef void (*callback)(void);

/* C threads that were not made by Python. */

struct work {
  int rounds;
  callback call;
};

static void *use_lock(void *argument) {
  struct work *work = argument;
  for (int n = 0; n < work->rounds; n++) {
    int state = PyGILState_Ensure();
    work->call();
    PyGILState_Release(state);
  }
  return NULL;
}

int run_gilstate_threads(int count, int rounds, callback call) {
  pthread_t threads[64];
  struct work work = {rounds, call};
  for (int n = 0; n < count; n++)
    if (pthread_create(&threads[n], NULL, use_lock, &work)) return 1;
  for (int n = 0; n < count; n++) pthread_join(threads[n], NULL);
  return 0;
}

/* The same one after the other: the C library puts each where the one before was. */
int run_gilstate_threads_in_turn(int count, int rounds, callback call) {
  for (int n = 0; n < count; n++)
    if (run_gilstate_threads(1, rounds, call)) return 1;
  return 0;
}

/* Threads whose thread-specific destructor takes the lock, in two rounds of destructors. */

static pthread_key_t key;
static callback key_call;

static void key_ends(void *value) {
  int state = PyGILState_Ensure();
  key_call();
  PyGILState_Release(state);
  if ((intptr_t)value == 2) pthread_setspecific(key, (void *)1);
}

static void *use_key(void *argument) {
  (void)argument;
  pthread_setspecific(key, (void *)2);
  return NULL;
}

int run_tsd_threads(int count, callback call) {
  key_call = call;
  if (pthread_key_create(&key, key_ends)) return 1;
  for (int n = 0; n < count; n += 5) {
    pthread_t threads[5];
    for (int m = 0; m < 5; m++)
      if (pthread_create(&threads[m], NULL, use_key, NULL)) return 2;
    for (int m = 0; m < 5; m++) pthread_join(threads[m], NULL);
  }
  return pthread_key_delete(key);
}

/* errno over giving up and taking the lock. Giving it up may set errno in some versions of CPython
 * (a mutex does not), so only values that survive stock are asked for. */

int errno_kept(int rounds) {
  for (int n = 0; n < rounds; n++) {
    errno = 77;
    void *state = PyEval_SaveThread();
    if (errno != 77) return 1;
    usleep(100);
    errno = 78;
    PyEval_RestoreThread(state);
    if (errno != 78) return 2;
  }
  return 0;
}

/* Cancellation. */

static pthread_mutex_t own_mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t own_cond = PTHREAD_COND_INITIALIZER;
static int waiting, cleaned;

static void clean(void *argument) {
  /* The mutex is held again when cleanup handlers run. */
  cleaned++;
  pthread_mutex_unlock(argument);
}

static void *wait_own(void *timed) {
  pthread_mutex_lock(&own_mutex);
  pthread_cleanup_push(clean, &own_mutex);
  waiting++;
  struct timespec deadline;
  clock_gettime(CLOCK_REALTIME, &deadline);
  deadline.tv_sec += 1000;
  for (;;) {
    if (timed)
      pthread_cond_timedwait(&own_cond, &own_mutex, &deadline);
    else
      pthread_cond_wait(&own_cond, &own_mutex);
  }
  pthread_cleanup_pop(1);
  return NULL;
}

int cancel_own_waits(int count) {
  pthread_t threads[64];
  waiting = cleaned = 0;
  for (int n = 0; n < count; n++)
    if (pthread_create(&threads[n], NULL, wait_own, (void *)(intptr_t)(n % 2))) return 1;
  for (int seen = 0; seen < count;) {
    usleep(100);
    pthread_mutex_lock(&own_mutex);
    seen = waiting;
    pthread_mutex_unlock(&own_mutex);
  }
  for (int n = 0; n < count; n++) pthread_cancel(threads[n]);
  for (int n = 0; n < count; n++) {
    void *result = NULL;
    pthread_join(threads[n], &result);
    if (result != PTHREAD_CANCELED) return 2;
  }
  if (cleaned != count) return 3;
  return 0;
}

static pthread_t lock_waiter;
static sem_t lock_waiter_ready;
static int lock_waiter_cleaned;

static void clean_lock_waiter(void *argument) {
  (void)argument;
  lock_waiter_cleaned++;
}

static void *wait_lock(void *argument) {
  (void)argument;
  int before;
  pthread_cleanup_push(clean_lock_waiter, NULL);
  /* Without this no CPython survives: its locks are cancellation points. */
  pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before);
  sem_post(&lock_waiter_ready);
  int state = PyGILState_Ensure();
  PyGILState_Release(state);
  pthread_setcancelstate(before, NULL);
  pthread_testcancel();
  sleep(1000);
  pthread_cleanup_pop(0);
  return NULL;
}

/* Called with the interpreter's lock held. */
int cancel_lock_waiter_begin(void) {
  sem_init(&lock_waiter_ready, 0, 0);
  lock_waiter_cleaned = 0;
  if (pthread_create(&lock_waiter, NULL, wait_lock, NULL)) return 1;
  sem_wait(&lock_waiter_ready);
  usleep(3000);
  return pthread_cancel(lock_waiter);
}

int cancel_lock_waiter_end(void) {
  void *result = NULL;
  pthread_join(lock_waiter, &result);
  if (result != PTHREAD_CANCELED) return 1;
  return lock_waiter_cleaned == 1 ? 0 : 2;
}

/* A signal handler that signals a condition variable of no relation. */

static pthread_cond_t storm_cond = PTHREAD_COND_INITIALIZER;
static volatile int storm_count;

static void storm(int number) {
  (void)number;
  int before = errno;
  __atomic_fetch_add(&storm_count, 1, __ATOMIC_RELAXED);
  pthread_cond_signal(&storm_cond);
  errno = before;
}

int storm_begin(int number) {
  struct sigaction action;
  memset(&action, 0, sizeof action);
  action.sa_handler = storm;
  return sigaction(number, &action, NULL);
}

int storm_handled(void) { return storm_count; }

/* Sub-interpreters. */

struct status {
  int type;
  const char *func, *message;
  int code;
};
struct config {
  int use_main_obmalloc, allow_fork, allow_exec, allow_threads, allow_daemon_threads,
      check_multi_interp_extensions, gil;
};
extern struct status Py_NewInterpreterFromConfig(void **, const struct config *)
    __attribute__((weak));

/* Called with the lock of the present interpreter held; holds it on return. */
int run_subinterpreter(int own, const char *body) {
  void *before = PyThreadState_Get();
  void *inside = NULL;
  if (own) {
    struct config config = {0, 0, 0, 1, 0, 1, 2};
    struct status status = Py_NewInterpreterFromConfig(&inside, &config);
    if (status.type) return 1;
  } else {
    inside = Py_NewInterpreter();
  }
  if (!inside) return 2;
  int result = PyRun_SimpleStringFlags(body, NULL);
  Py_EndInterpreter(inside);
  PyThreadState_Swap(before);
  return result ? 3 : 0;
}
