/* Groups images of handwritten digits by k-means: in each round, a task for each part of them.
 *
 * Source: the benchmark of the Common Lisp library `future`. See README.md in this folder. */
#include "../tasks.h"

enum { GROUPS = 10, PARTS = 16 };

/* Of some images: for each group the sum and the number of those nearest to its centre; and the sum
 * of their squared distances. */
struct part {
    long sums[GROUPS][PIXELS], counts[GROUPS];
    double inertia;
};

static struct part *parts;
static double centres[GROUPS][PIXELS];

static double distance(const int *image, const double *centre)
{
    double sum = 0;
    for (int i = 0; i < PIXELS; i++) {
        double difference = image[i] - centre[i];
        sum += difference * difference;
    }
    return sum;
}

static void assign(long number, void *result)
{
    struct part *part = result;
    memset(part, 0, sizeof *part);
    long end = image_count * (number + 1) / PARTS;
    for (long i = image_count * number / PARTS; i < end; i++) {
        double nearest = distance(images[i], centres[0]);
        int group = 0;
        for (int other = 1; other < GROUPS; other++) {
            double far = distance(images[i], centres[other]);
            if (far < nearest) {
                nearest = far;
                group = other;
            }
        }
        for (int pixel = 0; pixel < PIXELS; pixel++)
            part->sums[group][pixel] += images[i][pixel];
        part->counts[group]++;
        part->inertia += nearest;
    }
}

static void move_centre(int group)
{
    long count = 0;
    for (int i = 0; i < PARTS; i++)
        count += parts[i].counts[group];
    if (count == 0)
        return;
    for (int pixel = 0; pixel < PIXELS; pixel++) {
        long sum = 0;
        for (int i = 0; i < PARTS; i++)
            sum += parts[i].sums[group][pixel];
        centres[group][pixel] = (double)sum / (double)count;
    }
}

static double cluster(void)
{
    double inertia = 0;
    for (int group = 0; group < GROUPS; group++)
        for (int pixel = 0; pixel < PIXELS; pixel++)
            centres[group][pixel] = images[group][pixel];
    for (long round = 0; round < args.work; round++) {
        map(assign, PARTS, parts, sizeof *parts);
        inertia = 0;
        for (int i = 0; i < PARTS; i++)
            inertia += parts[i].inertia;
        for (int group = 0; group < GROUPS; group++)
            move_centre(group);
    }
    return inertia;
}

int main(int argc, char **argv)
{
    args.work = 10;
    parse(argc, argv);
    read_images();
    parts = shared(PARTS * sizeof *parts);
    return measure(args.work * PARTS, cluster);
}
