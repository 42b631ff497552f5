/* Builds trees whose nodes know their parents, counts them and drops them: here each node is freed.
 * See README.md in this folder. */
#include "../tasks.h"

struct node {
    struct node *parent, *left, *right;
};

static long *nodes;

static void *allocate(size_t size)
{
    void *memory = malloc(size);
    if (memory == NULL)
        fail("malloc");
    return memory;
}

static struct node *grow(struct node *parent, long depth)
{
    struct node *node = allocate(sizeof *node);
    node->parent = parent;
    node->left = depth > 0 ? grow(node, depth - 1) : NULL;
    node->right = depth > 0 ? grow(node, depth - 1) : NULL;
    return node;
}

static long count(const struct node *node)
{
    return 1 + (node->left != NULL ? count(node->left) + count(node->right) : 0);
}

static void drop(struct node *node)
{
    if (node->left != NULL) {
        drop(node->left);
        drop(node->right);
    }
    free(node);
}

static void grow_and_drop(long number, void *result)
{
    (void)number;
    struct node *tree = grow(NULL, args.size);
    *(long *)result = count(tree);
    drop(tree);
}

static double sum(void)
{
    long total = 0;
    map(grow_and_drop, args.work, nodes, sizeof *nodes);
    for (long i = 0; i < args.work; i++)
        total += nodes[i];
    return (double)total;
}

int main(int argc, char **argv)
{
    args.work = 300;
    args.size = 11;
    args.heap = 500000;
    parse(argc, argv);
    nodes = shared((size_t)args.work * sizeof *nodes);
    long **kept = allocate((size_t)args.heap * sizeof *kept);
    for (long i = 0; i < args.heap; i++) {
        kept[i] = allocate(sizeof *kept[i]);
        *kept[i] = i;
    }
    int status = measure(args.work, sum);
    for (long i = 0; i < args.heap; i++)
        free(kept[i]);
    free(kept);
    return status;
}
