/* Thousands of requests that overlap, each in a process or a thread of its own.
 *
 * Source: Anderson's "Get Your Thread Off of My Fork". See README.md in this folder. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { RESPONSE = 512 };

struct request {
    int id;
    int64_t begun;
};

static struct timespec pause_for;
static int output;
static pthread_mutex_t formatter = PTHREAD_MUTEX_INITIALIZER;

static int64_t now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (int64_t)time.tv_sec * 1000000000 + time.tv_nsec;
}

static void *respond(void *argument)
{
    const struct request *mine = argument;
    struct timespec left = pause_for;
    while (nanosleep(&left, &left) != 0)
        ;
    char when[32], text[RESPONSE + 1];
    pthread_mutex_lock(&formatter);
    time_t seconds = time(NULL);
    strftime(when, sizeof when, "%Y-%m-%d %H:%M:%S", localtime(&seconds));
    pthread_mutex_unlock(&formatter);
    static const char tail[] = "</body></response>\n";
    int length = snprintf(text, sizeof text,
                          "<response id=\"%d\" begun_ns=\"%lld\" ended_ns=\"%lld\"><time>%s</time><body>",
                          mine->id, (long long)mine->begun, (long long)now(), when);
    int end = RESPONSE - (int)(sizeof tail - 1);
    memset(text + length, '.', (size_t)(end - length));
    memcpy(text + end, tail, sizeof tail);
    return write(output, text, RESPONSE) == RESPONSE ? NULL : argument;
}

static int by_threads(int workers, struct request *requests)
{
    pthread_t *threads = calloc((size_t)workers, sizeof *threads);
    /* As small as they come: address space is what thousands of them run out of. */
    pthread_attr_t small;
    pthread_attr_init(&small);
    pthread_attr_setstacksize(&small, 64 * 1024);
    int failed = 0;
    for (int i = 0; i < workers; i++) {
        requests[i] = (struct request){i, now()};
        if (pthread_create(&threads[i], &small, respond, &requests[i]) != 0) {
            fprintf(stderr, "no more than %d threads can be made\n", i);
            exit(1);
        }
    }
    for (int i = 0; i < workers; i++) {
        void *wrong;
        pthread_join(threads[i], &wrong);
        failed += wrong != NULL;
    }
    free(threads);
    return failed;
}

static int by_forks(int workers)
{
    int failed = 0;
    for (int i = 0; i < workers; i++) {
        struct request mine = {i, now()};
        pid_t child = fork();
        if (child < 0) {
            fprintf(stderr, "no more than %d processes can be made\n", i);
            exit(1);
        }
        if (child == 0)
            _exit(respond(&mine) != NULL);
    }
    for (int i = 0, status; i < workers; i++)
        failed += wait(&status) < 0 || status != 0;
    return failed;
}

int main(int argc, char **argv)
{
    const char *mode = "thread", *file = "/dev/null";
    double wait_s = 1;
    int workers = 100;
    for (int i = 1; i + 1 < argc; i += 2) {
        if (strcmp(argv[i], "--mode") == 0)
            mode = argv[i + 1];
        else if (strcmp(argv[i], "--workers") == 0)
            workers = atoi(argv[i + 1]);
        else if (strcmp(argv[i], "--wait") == 0)
            wait_s = atof(argv[i + 1]);
        else if (strcmp(argv[i], "--output") == 0)
            file = argv[i + 1];
    }
    int is_fork = strcmp(mode, "fork") == 0;
    if (!is_fork && strcmp(mode, "thread") != 0) {
        printf("{\"lacks\": \"C has processes and threads\"}\n");
        return 3;
    }
    pause_for.tv_sec = (time_t)wait_s;
    pause_for.tv_nsec = (long)((wait_s - (double)pause_for.tv_sec) * 1e9);
    output = open(file, O_WRONLY | O_CREAT | O_APPEND, 0644);
    if (output < 0 || workers < 1)
        return 2;
    struct request *requests = calloc((size_t)workers, sizeof *requests);
    int64_t begun = now();
    int failed = is_fork ? by_forks(workers) : by_threads(workers, requests);
    printf("{\"elapsed_s\": %.9f}\n", (double)(now() - begun) / 1e9);
    free(requests);
    return failed != 0;
}
