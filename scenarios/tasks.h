/* What fib, kmeans, knn and trees share in C: arguments, modes, what is measured. See TASKS.md.
 *
 * A program gives a function that does the task of a number, and memory for what each task gives.
 * Threads are there from the beginning; forks are made for each map, so that they see what the
 * program has by then. Both take the next number from a counter when they have time. */
#pragma once
#define _GNU_SOURCE
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { PIXELS = 64 };

/* A mode that there is not: so the program ends, after a line that says why. */
enum { LACKS = 3 };

static struct {
    const char *mode, *data;
    int workers;
    long work, size, heap;
} args = {.mode = "sequential", .data = "digits.csv", .workers = 1};

/* Does the task of this number, and writes what it gives to `result`. */
typedef void task(long number, void *result);

static struct {
    pthread_t *threads;
    pthread_barrier_t begin, end;
    /* The first number that nobody has taken: in memory that forks share. */
    atomic_long *next;
    /* None: threads end. */
    task *call;
    long tasks;
    char *results;
    size_t size;
} pool;

static int is_mode(const char *name)
{
    return strcmp(args.mode, name) == 0;
}

static void fail(const char *what)
{
    perror(what);
    exit(1);
}

/* Memory that is the same one in forks. */
static void *shared(size_t size)
{
    void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        fail("mmap");
    return memory;
}

static void take_tasks(void)
{
    for (long number; (number = atomic_fetch_add(pool.next, 1)) < pool.tasks;)
        pool.call(number, pool.results + (size_t)number * pool.size);
}

static void *worker(void *unused)
{
    for (;;) {
        pthread_barrier_wait(&pool.begin);
        if (pool.call == NULL)
            return unused;
        take_tasks();
        pthread_barrier_wait(&pool.end);
    }
}

static void fork_workers(void)
{
    for (int i = 0; i < args.workers; i++) {
        pid_t child = fork();
        if (child < 0)
            fail("fork");
        if (child == 0) {
            take_tasks();
            _exit(0);
        }
    }
    for (int i = 0, status; i < args.workers; i++) {
        if (wait(&status) < 0 || status != 0) {
            fprintf(stderr, "a child failed\n");
            exit(1);
        }
    }
}

/* Does so many tasks; each has `size` bytes of `results`, which are shared(). */
static void map(task *call, long tasks, void *results, size_t size)
{
    pool.call = call;
    pool.tasks = tasks;
    pool.results = results;
    pool.size = size;
    atomic_store(pool.next, 0);
    if (is_mode("thread")) {
        pthread_barrier_wait(&pool.begin);
        pthread_barrier_wait(&pool.end);
    } else if (is_mode("fork")) {
        fork_workers();
    } else {
        take_tasks();
    }
}

static void do_nothing(long number, void *result)
{
    (void)number;
    (void)result;
}

static void open_pool(void)
{
    pool.next = shared(sizeof *pool.next);
    if (is_mode("thread")) {
        unsigned all = (unsigned)args.workers + 1;
        pthread_barrier_init(&pool.begin, NULL, all);
        pthread_barrier_init(&pool.end, NULL, all);
        pool.threads = calloc((size_t)args.workers, sizeof *pool.threads);
        for (int i = 0; i < args.workers; i++)
            if (pthread_create(&pool.threads[i], NULL, worker, NULL) != 0)
                fail("pthread_create");
    }
    map(do_nothing, args.workers, pool.next, 0);
}

static void close_pool(void)
{
    if (!is_mode("thread"))
        return;
    pool.call = NULL;
    pthread_barrier_wait(&pool.begin);
    for (int i = 0; i < args.workers; i++)
        pthread_join(pool.threads[i], NULL);
    free(pool.threads);
}

/* What is not given stays as it is in `args`. */
static void parse(int argc, char **argv)
{
    for (int i = 1; i + 1 < argc; i += 2) {
        const char *name = argv[i], *value = argv[i + 1];
        if (strcmp(name, "--mode") == 0)
            args.mode = value;
        else if (strcmp(name, "--workers") == 0)
            args.workers = atoi(value);
        else if (strcmp(name, "--work") == 0)
            args.work = atol(value);
        else if (strcmp(name, "--size") == 0)
            args.size = atol(value);
        else if (strcmp(name, "--heap") == 0)
            args.heap = atol(value);
        else if (strcmp(name, "--data") == 0)
            args.data = value;
    }
    if (!is_mode("sequential") && !is_mode("thread") && !is_mode("fork")) {
        printf("{\"lacks\": \"C has threads and forks\"}\n");
        exit(LACKS);
    }
    if (args.workers < 1)
        exit(2);
}

/* Each image: its pixels, and last which digit it is. */
static int (*images)[PIXELS + 1];
static long image_count;

static inline void read_images(void)
{
    FILE *file = fopen(args.data, "r");
    if (file == NULL)
        fail(args.data);
    int column = 0;
    for (int number; fscanf(file, "%d%*c", &number) == 1; column = (column + 1) % (PIXELS + 1)) {
        if (column == 0) {
            images = realloc(images, (size_t)++image_count * sizeof *images);
            if (images == NULL)
                fail("realloc");
        }
        images[image_count - 1][column] = number;
    }
    fclose(file);
}

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

/* Of this process and of its children that have been waited for. */
static double cpu_s(void)
{
    double seconds = 0;
    for (int i = 0; i < 2; i++) {
        struct rusage used;
        getrusage(i == 0 ? RUSAGE_SELF : RUSAGE_CHILDREN, &used);
        seconds += (double)(used.ru_utime.tv_sec + used.ru_stime.tv_sec)
                   + (double)(used.ru_utime.tv_usec + used.ru_stime.tv_usec) / 1e6;
    }
    return seconds;
}

/* Runs `body`, which makes so many calls and returns the result, and prints one line about it. */
static int measure(long calls, double (*body)(void))
{
    double cpu_before_s = cpu_s();
    open_pool();
    double begun = now();
    double result = body();
    double elapsed_s = now() - begun;
    close_pool();
    printf("{\"elapsed_s\": %.9f, \"calls\": %ld, \"cpu_s\": %.6f, \"result\": %.17g}\n",
           elapsed_s, calls, cpu_s() - cpu_before_s, result);
    return 0;
}
