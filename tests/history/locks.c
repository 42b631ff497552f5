/* Takes locks of every kind, in ways whose answers POSIX states; ends with 0 if all are as stated.
   Arguments: threads at a time, how often each of them takes the shared mutex, how many times as
   many threads are begun one after the other. */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define CHECK(what) do { if (!(what)) { fprintf(stderr, "%d: %s\n", __LINE__, #what); exit(1); } } while (0)

pthread_mutex_t shared_mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_rwlock_t readers_and_writers = PTHREAD_RWLOCK_INITIALIZER;
static pthread_spinlock_t spinning;
static long total, times;

__attribute__((noinline)) void take_it(pthread_mutex_t *mutex)
{
    CHECK(pthread_mutex_lock(mutex) == 0);
    __asm__ volatile("");
}

__attribute__((noinline)) void count_one(void)
{
    take_it(&shared_mutex);
    total++;
    CHECK(pthread_mutex_unlock(&shared_mutex) == 0);
}

static void *worker(void *unused)
{
    for (long i = 0; i < times; i++)
        count_one();
    return NULL;
}

static pthread_mutex_t *of_type(int type, int robust)
{
    pthread_mutex_t *made = malloc(sizeof *made);
    pthread_mutexattr_t about;
    pthread_mutexattr_init(&about);
    pthread_mutexattr_settype(&about, type);
    if (robust)
        pthread_mutexattr_setrobust(&about, PTHREAD_MUTEX_ROBUST);
    pthread_mutex_init(made, &about);
    return made;
}

static void *dies_with(void *mutex)
{
    CHECK(pthread_mutex_lock(mutex) == 0);
    return NULL;
}

static void *finds_it_taken(void *mutex)
{
    struct timespec soon;
    CHECK(pthread_mutex_trylock(mutex) == EBUSY);
    clock_gettime(CLOCK_REALTIME, &soon);
    soon.tv_nsec += 1000000;
    if (soon.tv_nsec >= 1000000000) {
        soon.tv_sec++;
        soon.tv_nsec -= 1000000000;
    }
    CHECK(pthread_mutex_timedlock(mutex, &soon) == ETIMEDOUT);
    return NULL;
}

static void run(void *(*what)(void *), void *argument)
{
    pthread_t made;
    CHECK(pthread_create(&made, NULL, what, argument) == 0);
    CHECK(pthread_join(made, NULL) == 0);
}

int main(int count, char **arguments)
{
    int threads = atoi(arguments[1]);
    times = atol(arguments[2]);
    int waves = count > 3 ? atoi(arguments[3]) : 1;
    pthread_t made[64];
    for (int wave = 0; wave < waves; wave++) {
        for (int i = 0; i < threads; i++)
            CHECK(pthread_create(&made[i], NULL, worker, NULL) == 0);
        for (int i = 0; i < threads; i++)
            CHECK(pthread_join(made[i], NULL) == 0);
    }
    CHECK(total == waves * threads * times);

    pthread_mutex_t *again = of_type(PTHREAD_MUTEX_RECURSIVE, 0);
    CHECK(pthread_mutex_lock(again) == 0 && pthread_mutex_lock(again) == 0);
    CHECK(pthread_mutex_unlock(again) == 0 && pthread_mutex_unlock(again) == 0);
    CHECK(pthread_mutex_unlock(again) == EPERM);

    pthread_mutex_t *checked = of_type(PTHREAD_MUTEX_ERRORCHECK, 0);
    CHECK(pthread_mutex_lock(checked) == 0 && pthread_mutex_lock(checked) == EDEADLK);
    run(finds_it_taken, checked);
    CHECK(pthread_mutex_unlock(checked) == 0);

    pthread_mutex_t *robust = of_type(PTHREAD_MUTEX_NORMAL, 1);
    run(dies_with, robust);
    CHECK(pthread_mutex_lock(robust) == EOWNERDEAD);
    CHECK(pthread_mutex_consistent(robust) == 0 && pthread_mutex_unlock(robust) == 0);

    CHECK(pthread_rwlock_rdlock(&readers_and_writers) == 0);
    CHECK(pthread_rwlock_rdlock(&readers_and_writers) == 0);
    CHECK(pthread_rwlock_unlock(&readers_and_writers) == 0);
    CHECK(pthread_rwlock_unlock(&readers_and_writers) == 0);
    CHECK(pthread_rwlock_wrlock(&readers_and_writers) == 0);
    CHECK(pthread_rwlock_wrlock(&readers_and_writers) == EDEADLK);
    CHECK(pthread_rwlock_unlock(&readers_and_writers) == 0);

    CHECK(pthread_spin_init(&spinning, 0) == 0);
    CHECK(pthread_spin_lock(&spinning) == 0 && pthread_spin_unlock(&spinning) == 0);

    pid_t child = fork();
    if (child == 0) {
        run(worker, NULL);
        _exit(0);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    return 0;
}
