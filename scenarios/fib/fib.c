/* Computes a Fibonacci number again and again, each time as a task of its own.
 *
 * Source: the benchmark of the Common Lisp library `future`. See README.md in this folder. */
#include "../tasks.h"

static long *numbers;

static long fib(long n)
{
    return n < 2 ? n : fib(n - 1) + fib(n - 2);
}

static void compute(long number, void *result)
{
    (void)number;
    *(long *)result = fib(args.size);
}

static double sum(void)
{
    long total = 0;
    map(compute, args.work, numbers, sizeof *numbers);
    for (long i = 0; i < args.work; i++)
        total += numbers[i];
    return (double)total;
}

int main(int argc, char **argv)
{
    args.work = 20000;
    args.size = 16;
    parse(argc, argv);
    numbers = shared((size_t)args.work * sizeof *numbers);
    return measure(args.work, sum);
}
