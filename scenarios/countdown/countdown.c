/* Counts down, in one thread or split over several, or over processes.
 *
 * Source: slides 3 to 11 of Beazley's "In Search of the Perfect GIL". See README.md in this
 * folder. The counter is volatile, or the compiler would count for us. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static void *countdown(void *work)
{
    volatile int64_t n = *(int64_t *)work;
    while (n > 0)
        n--;
    return NULL;
}

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

int main(int argc, char **argv)
{
    int64_t work = 100000000;
    const char *mode = "sequential";
    int workers = 1;
    for (int i = 1; i + 1 < argc; i += 2) {
        if (strcmp(argv[i], "--mode") == 0)
            mode = argv[i + 1];
        else if (strcmp(argv[i], "--workers") == 0)
            workers = atoi(argv[i + 1]);
        else if (strcmp(argv[i], "--work") == 0)
            work = atoll(argv[i + 1]);
    }
    if (workers < 1)
        return 2;
    double begun = now();
    int64_t part = work / workers;
    if (strcmp(mode, "sequential") == 0) {
        countdown(&work);
    } else if (strcmp(mode, "fork") == 0) {
        for (int i = 0; i < workers; i++) {
            pid_t child = fork();
            if (child < 0)
                return 1;
            if (child == 0) {
                countdown(&part);
                _exit(0);
            }
        }
        for (int i = 0, status; i < workers; i++)
            if (wait(&status) < 0 || status != 0)
                return 1;
    } else {
        pthread_t *threads = calloc((size_t)workers, sizeof *threads);
        for (int i = 0; i < workers; i++)
            if (pthread_create(&threads[i], NULL, countdown, &part) != 0)
                return 1;
        for (int i = 0; i < workers; i++)
            pthread_join(threads[i], NULL);
        free(threads);
    }
    printf("{\"elapsed_s\": %.9f}\n", now() - begun);
    return 0;
}
