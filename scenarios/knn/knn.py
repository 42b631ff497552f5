"""Tells handwritten digits by their nearest neighbours: a task for each image.

Source: the benchmark of the Common Lisp library `future`. See README.md in this folder.
"""
import heapq
import os
import sys

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import digits
import tasks

NEIGHBOURS = 5


def distance(one, other):
    return sum((a - b) * (a - b) for a, b in zip(one, other))


def vote(labels):
    """The commonest; of equally common ones the least."""
    return min(set(labels), key=lambda label: (-labels.count(label), label))


def classify(query):
    """The digit that an image is, by all the others."""
    image = images[query]
    near = heapq.nsmallest(
        NEIGHBOURS,
        ((distance(image, other), place) for place, other in enumerate(images) if place != query),
    )
    return vote([labels[place] for _, place in near])


def classify_by_numpy(query):
    squares = ((array - array[query]) ** 2).sum(axis=1)
    squares[query] = squares.max() + 1
    # Stable: of equally far ones the first, as above.
    near = squares.argsort(kind="stable")[:NEIGHBOURS]
    return vote([labels[place] for place in near])


def main():
    global images, labels, array
    args = tasks.parse(120, "images to tell", numpy=(0, "1: by NumPy"))
    images, labels = digits.load(args.data)
    if args.numpy:
        array = tasks.numpy().array(images)
    tell = classify_by_numpy if args.numpy else classify
    queries = [(number % len(images),) for number in range(args.work)]

    def accuracy(map):
        told = map(tell, queries)
        return sum(labels[query] == digit for (query,), digit in zip(queries, told)) / args.work

    tasks.measure(args, args.work, accuracy)


if __name__ == "__main__":
    main()
