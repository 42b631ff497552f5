"""A small C library with a history: to format a number it reads a setting that threads share, under
a mutex first, and from a thread's own value from one revision on."""

from __future__ import annotations

import os
import random
from dataclasses import dataclass
from pathlib import Path

from generator import git

HEADER = """\
#define FORMAT_VERSION "{version}"
void set_precision(int digits);
int format_double(char *text, double value);
"""

COMMON = """\
#include <pthread.h>
#include <stdio.h>
#include "format.h"
"""

MUTEX = """\
static pthread_mutex_t precision_mutex = PTHREAD_MUTEX_INITIALIZER;
static int precision = 12;

void set_precision(int digits)
{
    pthread_mutex_lock(&precision_mutex);
    precision = digits;
    pthread_mutex_unlock(&precision_mutex);
}

static int get_precision(void)
{
    pthread_mutex_lock(&precision_mutex);
    int digits = precision;
    pthread_mutex_unlock(&precision_mutex);
    return digits;
}
"""

OWN = """\
static _Thread_local int precision = 12;

void set_precision(int digits)
{
    precision = digits;
}

static int get_precision(void)
{
    return precision;
}
"""

# Cheap, so that reading the setting is what counts.
CONVERT = """\
int format_double(char *text, double value)
{
    long whole = (long)value;
    int digits = get_precision(), length = 0;
    while (digits-- > 8) {
        text[length++] = '0' + whole % 10;
        whole /= 10;
    }
    text[length] = 0;
    return length;
}
"""

MAKEFILE = """\
CFLAGS = -O2 -g
libformat.a: format.o
\t$(AR) rcs $@ format.o
format.o: format.c format.h
"""

BENCHMARK = """\
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include "format.h"

static pthread_barrier_t barrier;
static long work;

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec / 1e9;
}

static void *worker(void *unused)
{
    char text[64];
    pthread_barrier_wait(&barrier);
    for (long i = 0; i < work; i++)
        format_double(text, i * 1.25);
    return NULL;
}

int main(int count, char **arguments)
{
    int threads = atoi(arguments[1]);
    pthread_t made[64];
    work = 1500000 / threads;
    pthread_barrier_init(&barrier, NULL, threads + 1);
    for (int i = 0; i < threads; i++)
        pthread_create(&made[i], NULL, worker, NULL);
    double begun = now();
    pthread_barrier_wait(&barrier);
    for (int i = 0; i < threads; i++)
        pthread_join(made[i], NULL);
    printf("THREADS=%d REAL TIME=%f\\n", threads, now() - begun);
    return 0;
}
"""

PROJECT = """\
[repository]
path = "{repository}"
range = "{oldest}..main"
version = {{ file = "format.h", pattern = 'FORMAT_VERSION "(.*)"' }}

[build]
steps = ["make"]
inputs = ["format.c", "format.h", "Makefile"]

[benchmark]
folder = "bench"
steps = ["cc -O2 -I {{build}} -o bench bench.c {{build}}/libformat.a -lpthread"]
command = "{{benchmark}}/bench {{threads}}"
threads = [1, 2]
repeats = 3

[read]
{read}

[metric]
value = "{value}"
better = "{better}"
"""

TIME = """time = { pattern = 'REAL TIME=([^ ]+)' }"""


@dataclass
class Library:
    """The repository of the library, with its revisions, oldest first, and the one that changed
    how the setting is read."""

    folder: Path
    revisions: list[str]
    culprit: str

    def project(
        self,
        place: Path,
        value: str = "time[1] / time[2]",
        read: str = TIME,
        better: str = "higher",
    ) -> Path:
        """A project file, with its benchmark beside."""
        (place / "bench").mkdir(parents=True, exist_ok=True)
        (place / "bench" / "bench.c").write_text(BENCHMARK)
        file = place / "deconvoy.toml"
        text = PROJECT.format(
            repository=os.path.relpath(self.folder, place),
            oldest=self.revisions[0],
            read=read,
            value=value,
            better=better,
        )
        file.write_text(text)
        return file


def make(folder: Path, count: int = 60, seed: int = 1, at: int | None = None) -> Library:
    """`count` revisions; some touch documents alone, some do not compile."""
    chosen = random.Random(seed)
    at = at if at is not None else chosen.randrange(count // 4, 3 * count // 4)
    folder.mkdir()
    git(folder, "init", "--quiet", "--initial-branch=main")
    note = 0
    broken = {n for n in range(1, count - 1) if n not in (at - 1, at) and chosen.random() < 0.15}
    made = []
    for number in range(count):
        setting = OWN if number >= at else MUTEX
        if chosen.random() < 0.25 and number not in (0, at) and number - 1 not in broken:
            (folder / "NOTES").write_text(f"note {number}\n")
            broken.discard(number)
        else:
            note = number
        body = COMMON + f"/* {note} */\n" + setting + CONVERT
        if number in broken:
            body += "int broken(void) { return undeclared; }\n"
        (folder / "format.c").write_text(body)
        (folder / "format.h").write_text(HEADER.format(version=f"1.{note // 20}"))
        (folder / "Makefile").write_text(MAKEFILE)
        git(folder, "add", "--all")
        git(folder, "commit", "--quiet", "--message", f"Step {number}")
        made.append(git(folder, "rev-parse", "HEAD").strip())
    return Library(folder, made, made[at])
