"""Threads that SET and GET with redis-py, with CPU-bound threads beside them. Orders: phases.py.

redis_client.py PORT [THREADS]
"""

# Checked where the benchmark's packages are not installed, too.
# mypy: disable-error-code="import-not-found"
from __future__ import annotations

import sys

import phases
import redis


class Client:
    """One connection, used by one thread."""

    def __init__(self, port: int, place: int) -> None:
        self.key = f"item-{place}"
        self.redis = redis.Redis(host="127.0.0.1", port=port)
        self.redis.ping()

    def request(self, number: int) -> bool:
        value = str(number).encode()
        self.redis.set(self.key, value)
        return bool(self.redis.get(self.key) == value)


if __name__ == "__main__":
    count = int(sys.argv[2]) if len(sys.argv) > 2 else 4
    phases.serve([Client(int(sys.argv[1]), place).request for place in range(count)])
