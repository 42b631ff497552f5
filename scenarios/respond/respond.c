/* Thousands of requests that overlap, each in a process or a thread of its own.
 *
 * Source: Anderson's "Get Your Thread Off of My Fork". See README.md in this folder. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { RESPONSE = 512 };

struct request {
    int id;
    int64_t begun;
    int output;
};

static struct timespec pause_for;
static int output;
/* Of the second form; in the first there is none. */
static int listener = -1;
/* When the first request was begun, or its connection was there. */
static int64_t first_begun;
static pthread_mutex_t formatter = PTHREAD_MUTEX_INITIALIZER;

static int64_t now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (int64_t)time.tv_sec * 1000000000 + time.tv_nsec;
}

/* Over a socket: whether the client has said what it wants. */
static int hear(struct request *mine)
{
    char line[32];
    size_t length = 0;
    if (write(mine->output, "ready\n", 6) != 6)
        return 0;
    do {
        ssize_t more = read(mine->output, line + length, sizeof line - 1 - length);
        if (more <= 0)
            return 0;
        length += (size_t)more;
    } while (line[length - 1] != '\n');
    line[length] = '\0';
    mine->begun = now();
    return sscanf(line, "respond %d", &mine->id) == 1;
}

static void *respond(void *argument)
{
    struct request *mine = argument;
    if (listener >= 0 && !hear(mine))
        return argument;
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
                          "<response id=\"%d\" begun_ns=\"%lld\" ended_ns=\"%lld\">"
                          "<time>%s</time><body>",
                          mine->id, (long long)mine->begun, (long long)now(), when);
    int end = RESPONSE - (int)(sizeof tail - 1);
    memset(text + length, '.', (size_t)(end - length));
    memcpy(text + end, tail, sizeof tail);
    int is_written = write(mine->output, text, RESPONSE) == RESPONSE;
    if (listener >= 0)
        close(mine->output);
    return is_written ? NULL : argument;
}

static struct request begin(int id)
{
    if (listener < 0)
        return (struct request){id, now(), output};
    int conn = accept(listener, NULL, NULL);
    if (conn < 0) {
        perror("accept");
        exit(1);
    }
    if (id == 0)
        first_begun = now();
    return (struct request){.output = conn};
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
        requests[i] = begin(i);
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
        struct request mine = begin(i);
        pid_t child = fork();
        if (child < 0) {
            fprintf(stderr, "no more than %d processes can be made\n", i);
            exit(1);
        }
        if (child == 0)
            _exit(respond(&mine) != NULL);
        if (listener >= 0)
            close(mine.output);
    }
    for (int i = 0, status; i < workers; i++)
        failed += wait(&status) < 0 || status != 0;
    return failed;
}

static int listens(void)
{
    struct rlimit files;
    getrlimit(RLIMIT_NOFILE, &files);
    files.rlim_cur = files.rlim_max;
    setrlimit(RLIMIT_NOFILE, &files);
    /* A client that has gone is an error of its request's, not the end of all. */
    signal(SIGPIPE, SIG_IGN);
    struct sockaddr_in address = {.sin_family = AF_INET};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof address;
    listener = socket(AF_INET, SOCK_STREAM, 0);
    if (bind(listener, (struct sockaddr *)&address, length) != 0 ||
        /* The kernel makes of it the most that it has. */
        listen(listener, INT_MAX) != 0 ||
        getsockname(listener, (struct sockaddr *)&address, &length) != 0)
        return 0;
    printf("{\"port\": %d}\n", ntohs(address.sin_port));
    fflush(stdout);
    return 1;
}

int main(int argc, char **argv)
{
    const char *mode = "thread", *file = "/dev/null";
    double wait_s = 1;
    int workers = 100, sockets = 0;
    for (int i = 1; i + 1 < argc; i += 2) {
        if (strcmp(argv[i], "--mode") == 0)
            mode = argv[i + 1];
        else if (strcmp(argv[i], "--workers") == 0)
            workers = atoi(argv[i + 1]);
        else if (strcmp(argv[i], "--wait") == 0)
            wait_s = atof(argv[i + 1]);
        else if (strcmp(argv[i], "--output") == 0)
            file = argv[i + 1];
        else if (strcmp(argv[i], "--sockets") == 0)
            sockets = atoi(argv[i + 1]);
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
    if (sockets && !listens())
        return 1;
    struct request *requests = calloc((size_t)workers, sizeof *requests);
    first_begun = now();
    int failed = is_fork ? by_forks(workers) : by_threads(workers, requests);
    printf("{\"elapsed_s\": %.9f}\n", (double)(now() - first_begun) / 1e9);
    free(requests);
    return failed != 0;
}
