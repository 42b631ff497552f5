/* The messaging server in C: echoes size-prefixed messages while CPU-bound threads count.
 *
 * Source: slides 12 to 19 of Beazley's "In Search of the Perfect GIL". No lock in common: what the
 * other runtimes are measured against. See README.md in this folder for what each line means. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

/* One line of cache each: the threads share nothing. */
struct count {
    _Alignas(64) volatile uint64_t n;
};

static struct count *counts;
static int listener;

static ssize_t recv_exactly(int conn, void *place, size_t size)
{
    size_t have = 0;
    while (have < size) {
        ssize_t more = recv(conn, (char *)place + have, size - have, 0);
        if (more <= 0)
            return 0;
        have += (size_t)more;
    }
    return (ssize_t)have;
}

static int send_all(int conn, const void *data, size_t size)
{
    size_t sent = 0;
    while (sent < size) {
        ssize_t more = send(conn, (const char *)data + sent, size - sent, MSG_NOSIGNAL);
        if (more <= 0)
            return 0;
        sent += (size_t)more;
    }
    return 1;
}

static void *serve(void *unused)
{
    (void)unused;
    for (;;) {
        int on = 1, conn = accept(listener, NULL, NULL);
        if (conn < 0)
            return NULL;
        setsockopt(conn, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
        uint32_t head;
        while (recv_exactly(conn, &head, sizeof head)) {
            size_t size = ntohl(head);
            char *message = malloc(size);
            if (!message || !recv_exactly(conn, message, size) ||
                !send_all(conn, &head, sizeof head) || !send_all(conn, message, size)) {
                free(message);
                break;
            }
            free(message);
        }
        close(conn);
    }
}

static void *spin(void *argument)
{
    struct count *mine = argument;
    for (;;)
        mine->n++;
    return NULL;
}

static void start(void *(*target)(void *), void *argument)
{
    pthread_t thread;
    if (pthread_create(&thread, NULL, target, argument) != 0)
        exit(1);
}

int main(int argc, char **argv)
{
    int workers = 0;
    for (int i = 1; i + 1 < argc; i += 2)
        if (strcmp(argv[i], "--workers") == 0)
            workers = atoi(argv[i + 1]);
    struct sockaddr_in address = {.sin_family = AF_INET};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof address;
    listener = socket(AF_INET, SOCK_STREAM, 0);
    if (bind(listener, (struct sockaddr *)&address, length) != 0 || listen(listener, 16) != 0 ||
        getsockname(listener, (struct sockaddr *)&address, &length) != 0)
        return 1;
    counts = aligned_alloc(64, sizeof *counts * (size_t)(workers + 1));
    start(serve, NULL);
    for (int i = 0; i < workers; i++) {
        counts[i].n = 0;
        start(spin, &counts[i]);
    }
    printf("{\"port\": %d}\n", ntohs(address.sin_port));
    fflush(stdout);
    char line[64];
    while (fgets(line, sizeof line, stdin)) {
        struct timespec now;
        clock_gettime(CLOCK_MONOTONIC, &now);
        printf("{\"at\": %.9f, \"counts\": [", (double)now.tv_sec + (double)now.tv_nsec / 1e9);
        for (int i = 0; i < workers; i++)
            printf("%s%llu", i ? ", " : "", (unsigned long long)counts[i].n);
        printf("]}\n");
        fflush(stdout);
    }
    return 0;
}
