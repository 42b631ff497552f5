"""Computes a Fibonacci number again and again, each time as a task of its own.

Source: the benchmark of the Common Lisp library `future`. See README.md in this folder.
"""
import os
import sys

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import tasks


def fib(n):
    return n if n < 2 else fib(n - 1) + fib(n - 2)


def main():
    args = tasks.parse(20000, "calls", size=(16, "which number of the series a call computes"))
    tasks.measure(args, args.work, lambda map: sum(map(fib, [(args.size,)] * args.work)))


if __name__ == "__main__":
    main()
