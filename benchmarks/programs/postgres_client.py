"""Threads that SELECT a row by its key with psycopg, with CPU-bound threads beside them. Orders:
phases.py.

postgres_client.py CONNECTION-STRING [THREADS]

The database has a table `item (id, square)` with the rows 0 to 999: see serving/databases.py.
"""

# Checked where the benchmark's packages are not installed, too.
# mypy: disable-error-code="import-not-found"
from __future__ import annotations

import sys

import phases
import psycopg

ROWS = 1000


class Client:
    """One connection, used by one thread."""

    def __init__(self, address: str) -> None:
        self.cursor = psycopg.connect(address, autocommit=True).cursor()

    def request(self, number: int) -> bool:
        key = number % ROWS
        row = self.cursor.execute("select square from item where id = %s", (key,)).fetchone()
        return bool(row == (key * key,))


if __name__ == "__main__":
    count = int(sys.argv[2]) if len(sys.argv) > 2 else 4
    phases.serve([Client(sys.argv[1]).request for _ in range(count)])
