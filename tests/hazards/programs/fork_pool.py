"""multiprocessing pools made by fork inside threads, beside CPU-bound threads."""

import multiprocessing
import threading

import hazard


def square(number):
    return number * number


if __name__ == "__main__":
    results = []
    context = multiprocessing.get_context("fork")

    def use_pool():
        with context.Pool(2) as pool:
            results.append(sum(pool.map(square, range(100))))

    with hazard.Spinners(2):
        # One after the other: a pool that is forked while another starts is a known deadlock of
        # multiprocessing itself.
        for _ in range(2):
            thread = threading.Thread(target=use_pool)
            thread.start()
            thread.join()
    assert results == [328350] * 2, results
    hazard.ok()
