/* A program that is no Python and uses condition variables intensely, laid out like CPython's
 * lock: cond, mutex 48 bytes on, second cond 88 bytes on, sane-looking words before. It works, and
 * every call does what the C library's does. Also built with -static. */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static struct {
  unsigned long interval;
  void *last_holder;
  int locked;
  unsigned long switches;
  pthread_cond_t cond;
  pthread_mutex_t mutex;
  pthread_cond_t second;
  pthread_mutex_t second_mutex;
} lock = {.interval = 5000, .locked = 1, .switches = 7};

_Static_assert(sizeof(pthread_cond_t) == 48, "the layout that CPython has");

static long items, taken, early, late;
enum { WANTED = 20000 };

static void deadline_in(struct timespec *at, long ns) {
  clock_gettime(CLOCK_MONOTONIC, at);
  at->tv_nsec += ns;
  at->tv_sec += at->tv_nsec / 1000000000;
  at->tv_nsec %= 1000000000;
}

static void *consume(void *argument) {
  (void)argument;
  pthread_mutex_lock(&lock.mutex);
  while (taken < WANTED) {
    if (items == 0) {
      struct timespec at, now;
      deadline_in(&at, 5000000);
      errno = 55;
      int result = pthread_cond_timedwait(&lock.cond, &lock.mutex, &at);
      if (errno != 55) late += 1000000;
      clock_gettime(CLOCK_MONOTONIC, &now);
      int over = now.tv_sec > at.tv_sec || (now.tv_sec == at.tv_sec && now.tv_nsec >= at.tv_nsec);
      if (result == ETIMEDOUT && !over) early++;
      if (result != 0 && result != ETIMEDOUT) late++;
      continue;
    }
    items--;
    taken++;
    pthread_cond_signal(&lock.second);
  }
  pthread_cond_broadcast(&lock.cond);
  pthread_mutex_unlock(&lock.mutex);
  return NULL;
}

static void *produce(void *argument) {
  (void)argument;
  pthread_mutex_lock(&lock.mutex);
  while (taken < WANTED) {
    if (items >= 8) {
      struct timespec at;
      deadline_in(&at, 1000000);
      pthread_cond_timedwait(&lock.second, &lock.mutex, &at);
      continue;
    }
    items++;
    pthread_cond_signal(&lock.cond);
  }
  pthread_mutex_unlock(&lock.mutex);
  return NULL;
}

static int ready;

static void *wait_plain(void *argument) {
  (void)argument;
  pthread_mutex_lock(&lock.second_mutex);
  while (!ready) pthread_cond_wait(&lock.second, &lock.second_mutex);
  pthread_mutex_unlock(&lock.second_mutex);
  return NULL;
}

int main(void) {
  alarm(60);
  for (int round = 0; round < 3; round++) {
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_mutex_init(&lock.mutex, NULL);
    pthread_mutex_init(&lock.second_mutex, NULL);
    pthread_cond_init(&lock.cond, &attributes);
    pthread_cond_init(&lock.second, &attributes);
    items = taken = ready = 0;
    pthread_t threads[6];
    for (int n = 0; n < 6; n++)
      pthread_create(&threads[n], NULL, n % 2 ? produce : consume, NULL);
    for (int n = 0; n < 6; n++) pthread_join(threads[n], NULL);
    if (taken != WANTED || early || late) {
      printf("taken %ld early %ld late %ld\n", taken, early, late);
      return 1;
    }
    pthread_create(&threads[0], NULL, wait_plain, NULL);
    pthread_create(&threads[1], NULL, wait_plain, NULL);
    usleep(2000);
    pthread_mutex_lock(&lock.second_mutex);
    ready = 1;
    pthread_cond_signal(&lock.second);
    pthread_cond_signal(&lock.second);
    pthread_mutex_unlock(&lock.second_mutex);
    for (int n = 0; n < 2; n++) pthread_join(threads[n], NULL);
    /* A timed wait that nobody answers takes its time. */
    struct timespec before, at, now;
    clock_gettime(CLOCK_MONOTONIC, &before);
    deadline_in(&at, 5000000);
    pthread_mutex_lock(&lock.mutex);
    int result = pthread_cond_timedwait(&lock.cond, &lock.mutex, &at);
    pthread_mutex_unlock(&lock.mutex);
    clock_gettime(CLOCK_MONOTONIC, &now);
    if (result == ETIMEDOUT &&
        (now.tv_sec < at.tv_sec || (now.tv_sec == at.tv_sec && now.tv_nsec < at.tv_nsec)))
      return 2;
    if (lock.interval != 5000 || lock.switches != 7 || lock.locked != 1) return 3;
    if (pthread_cond_destroy(&lock.cond) || pthread_cond_destroy(&lock.second)) return 4;
    pthread_mutex_destroy(&lock.mutex);
    pthread_mutex_destroy(&lock.second_mutex);
  }
  puts("ok");
  return 0;
}
