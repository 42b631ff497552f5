/* Numbers to text in several threads, by a setting of the whole process: four ways to read it.
 *
 * Source: the benchmark and the cure of Porter's "Performance Tuning Tcl" (tcl_precision). See
 * README.md in this folder. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { SETTING = 16, TEXT = 40 };

/* The setting is a text, as it was in Tcl: nobody may read it while it is written. */
static char setting[SETTING] = "%.6g";
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_rwlock_t rwlock = PTHREAD_RWLOCK_INITIALIZER;

/* Grows with each change; a thread's copy is right while it is of this epoch. */
static atomic_uint epoch = 1;
static _Thread_local unsigned my_epoch;
static _Thread_local char mine[SETTING];

static int under_mutex(char *text, double value)
{
    pthread_mutex_lock(&mutex);
    int length = snprintf(text, TEXT, setting, value);
    pthread_mutex_unlock(&mutex);
    return length;
}

static int under_rwlock(char *text, double value)
{
    pthread_rwlock_rdlock(&rwlock);
    int length = snprintf(text, TEXT, setting, value);
    pthread_rwlock_unlock(&rwlock);
    return length;
}

static int by_epoch(char *text, double value)
{
    /* Pairs with the release in `set`. */
    if (atomic_load_explicit(&epoch, memory_order_acquire) != my_epoch) {
        pthread_mutex_lock(&mutex);
        my_epoch = atomic_load_explicit(&epoch, memory_order_relaxed);
        memcpy(mine, setting, SETTING);
        pthread_mutex_unlock(&mutex);
    }
    return snprintf(text, TEXT, mine, value);
}

static int by_own(char *text, double value)
{
    return snprintf(text, TEXT, mine, value);
}

static void set(const char *to)
{
    pthread_mutex_lock(&mutex);
    pthread_rwlock_wrlock(&rwlock);
    strncpy(setting, to, SETTING - 1);
    atomic_fetch_add_explicit(&epoch, 1, memory_order_release);
    pthread_rwlock_unlock(&rwlock);
    pthread_mutex_unlock(&mutex);
}

static const struct {
    const char *name;
    int (*convert)(char *text, double value);
} designs[] = {
    {"mutex", under_mutex}, {"rwlock", under_rwlock}, {"epoch", by_epoch}, {"own", by_own}};

static int (*convert)(char *text, double value);

struct part {
    long long begin, end, characters;
};

static void *work(void *argument)
{
    struct part *part = argument;
    char text[TEXT];
    /* A thread's own value, which nobody else may change. */
    if (convert == by_own)
        memcpy(mine, setting, SETTING);
    for (long long i = part->begin; i < part->end; i++)
        part->characters += convert(text, (double)(i + 1) / 7);
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
    const char *design = "mutex";
    long long count = 4000000, characters = 0;
    int workers = 1;
    for (int i = 1; i + 1 < argc; i += 2) {
        if (strcmp(argv[i], "--design") == 0)
            design = argv[i + 1];
        else if (strcmp(argv[i], "--workers") == 0)
            workers = atoi(argv[i + 1]);
        else if (strcmp(argv[i], "--work") == 0)
            count = atoll(argv[i + 1]);
    }
    for (size_t i = 0; i < sizeof designs / sizeof *designs; i++)
        if (strcmp(designs[i].name, design) == 0)
            convert = designs[i].convert;
    if (workers < 1 || convert == NULL)
        return 2;
    set("%.12g");

    pthread_t *threads = calloc((size_t)workers, sizeof *threads);
    /* Apart, so that no two threads count in one cache line. */
    struct part (*parts)[8] = calloc((size_t)workers, sizeof *parts);
    double begun = now();
    for (int i = 0; i < workers; i++) {
        *parts[i] = (struct part){count * i / workers, count * (i + 1) / workers, 0};
        if (pthread_create(&threads[i], NULL, work, parts[i]) != 0)
            return 1;
    }
    for (int i = 0; i < workers; i++) {
        pthread_join(threads[i], NULL);
        characters += parts[i]->characters;
    }
    printf("{\"elapsed_s\": %.9f, \"result\": %lld}\n", now() - begun, characters);
    free(parts);
    free(threads);
    return 0;
}
