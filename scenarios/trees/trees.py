"""Builds trees whose nodes know their parents, counts them and drops them: only the collector can
take them back. See README.md in this folder.
"""
import os
import sys

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import tasks


class Node:
    __slots__ = ("parent", "left", "right")

    def __init__(self, parent, depth):
        self.parent = parent
        self.left = Node(self, depth - 1) if depth else None
        self.right = Node(self, depth - 1) if depth else None

    def count(self):
        return 1 + (self.left.count() + self.right.count() if self.left else 0)


def grow(depth):
    return Node(None, depth).count()


def main():
    args = tasks.parse(
        300,
        "trees",
        size=(11, "depth of a tree: 2 to this power, twice, nodes"),
        heap=(500000, "objects of the program that stay, for the collector to look at"),
    )
    kept = [[number] for number in range(args.heap)]
    tasks.measure(args, args.work, lambda map: sum(map(grow, [(args.size,)] * args.work)))
    assert len(kept) == args.heap


if __name__ == "__main__":
    main()
