/* Tells handwritten digits by their nearest neighbours: a task for each image.
 *
 * Source: the benchmark of the Common Lisp library `future`. See README.md in this folder. */
#include "../tasks.h"
#include <limits.h>

enum { NEIGHBOURS = 5, DIGITS = 10 };

static int *told;

static int distance(const int *one, const int *other)
{
    int sum = 0;
    for (int i = 0; i < PIXELS; i++)
        sum += (one[i] - other[i]) * (one[i] - other[i]);
    return sum;
}

/* The digit that an image is, by all the others. */
static void classify(long number, void *result)
{
    long query = number % image_count;
    /* The nearest so far, and one place for what is not among them. */
    struct {
        int distance, digit;
    } near[NEIGHBOURS + 1];
    for (int i = 0; i < NEIGHBOURS; i++)
        near[i].distance = INT_MAX;
    for (long i = 0; i < image_count; i++) {
        if (i == query)
            continue;
        int far = distance(images[query], images[i]), place = NEIGHBOURS;
        /* Of equally far ones the first stays before. */
        for (; place > 0 && far < near[place - 1].distance; place--)
            near[place] = near[place - 1];
        near[place].distance = far;
        near[place].digit = images[i][PIXELS];
    }
    int votes[DIGITS] = {0}, commonest = 0;
    for (int i = 0; i < NEIGHBOURS; i++)
        votes[near[i].digit]++;
    for (int digit = 1; digit < DIGITS; digit++)
        if (votes[digit] > votes[commonest])
            commonest = digit;
    *(int *)result = commonest;
}

static double accuracy(void)
{
    long right = 0;
    map(classify, args.work, told, sizeof *told);
    for (long i = 0; i < args.work; i++)
        right += told[i] == images[i % image_count][PIXELS];
    return (double)right / (double)args.work;
}

int main(int argc, char **argv)
{
    args.work = 120;
    parse(argc, argv);
    read_images();
    told = shared((size_t)args.work * sizeof *told);
    return measure(args.work, accuracy);
}
