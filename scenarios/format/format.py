"""Numbers to text in several threads, by a setting of the whole process: ways to read it.

Source: the benchmark and the cure of Porter's "Performance Tuning Tcl" (tcl_precision). See README.md in
this folder.
"""
import argparse
import json
import sys
import threading
import time

SETTING = "%.12g"


def lack(what):
    print(json.dumps({"lacks": what}))
    sys.exit(3)


def under_mutex(begin, end):
    characters = 0
    for i in range(begin + 1, end + 1):
        with mutex:
            text = setting[0] % (i / 7)
        characters += len(text)
    return characters


def by_epoch(begin, end):
    characters = 0
    for i in range(begin + 1, end + 1):
        characters += len(everywhere.get() % (i / 7))
    return characters


def by_own(begin, end):
    own.setting = SETTING
    characters = 0
    for i in range(begin + 1, end + 1):
        characters += len(own.setting % (i / 7))
    return characters


def main():
    global mutex, setting, everywhere, own
    parser = argparse.ArgumentParser()
    parser.add_argument("--design", choices=["mutex", "rwlock", "epoch", "own"], default="mutex")
    parser.add_argument("--mode", default="thread")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--work", type=int, default=4000000)
    parser.add_argument("--switch-interval", type=float, help="seconds")
    args = parser.parse_args()
    if args.switch_interval is not None:
        sys.setswitchinterval(args.switch_interval)
    if args.design == "rwlock":
        lack("Python's library has no reader-writer lock")
    mutex, setting, own = threading.Lock(), ["%.6g"], threading.local()
    setting[0] = SETTING
    if args.design == "epoch":
        try:
            from deconvoy.futures import ProcessGlobal
        except ImportError as error:
            lack(str(error))
        everywhere = ProcessGlobal("%.6g")
        everywhere.set(SETTING)
    convert = {"mutex": under_mutex, "epoch": by_epoch, "own": by_own}[args.design]
    counted = [0] * args.workers

    def work(number):
        ends = [args.work * n // args.workers for n in (number, number + 1)]
        counted[number] = convert(*ends)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(args.workers)]
    begun = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    print(json.dumps({"elapsed_s": time.perf_counter() - begun, "result": sum(counted)}))


if __name__ == "__main__":
    main()
