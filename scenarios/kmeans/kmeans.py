"""Groups images of handwritten digits by k-means: in each round, a task for each part of them.

Source: the benchmark of the Common Lisp library `future`. See README.md in this folder.
"""
import os
import sys

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import digits
import tasks

GROUPS = 10
PARTS = 16


def distance(one, other):
    return sum((a - b) * (a - b) for a, b in zip(one, other))


def assign(begin, end, centres):
    """Of these images: for each group the sum and the number of those nearest to its centre; and the
    sum of their squared distances."""
    sums = [[0] * len(images[0]) for _ in centres]
    counts = [0] * len(centres)
    inertia = 0.0
    for image in images[begin:end]:
        nearest, group = min((distance(image, centre), at) for at, centre in enumerate(centres))
        sums[group] = [a + b for a, b in zip(sums[group], image)]
        counts[group] += 1
        inertia += nearest
    return sums, counts, inertia


def assign_by_numpy(begin, end, centres):
    np = tasks.numpy()
    part = array[begin:end]
    squares = ((part[:, None, :] - np.array(centres)[None, :, :]) ** 2).sum(axis=2)
    groups = squares.argmin(axis=1)
    counts = np.bincount(groups, minlength=len(centres))
    sums = np.zeros((len(centres), array.shape[1]))
    np.add.at(sums, groups, part)
    return sums.tolist(), counts.tolist(), float(squares.min(axis=1).sum())


def main():
    global images, array
    args = tasks.parse(10, "rounds", numpy=(0, "1: by NumPy"))
    images, _ = digits.load(args.data)
    if args.numpy:
        array = tasks.numpy().array(images)
    step = assign_by_numpy if args.numpy else assign
    ends = [len(images) * part // PARTS for part in range(PARTS + 1)]

    def cluster(map):
        centres = [[float(number) for number in image] for image in images[:GROUPS]]
        inertia = 0.0
        for _ in range(args.work):
            parts = map(step, [(begin, end, centres) for begin, end in zip(ends, ends[1:])])
            inertia = sum(part[2] for part in parts)
            for group, centre in enumerate(centres):
                count = sum(part[1][group] for part in parts)
                if count:
                    total = [sum(numbers) for numbers in zip(*(part[0][group] for part in parts))]
                    centre[:] = [number / count for number in total]
        return inertia

    tasks.measure(args, args.work * PARTS, cluster)


if __name__ == "__main__":
    main()
