"""A load generator for HTTP that can keep to a rate, which wrk cannot. Orders: see phases.py.

http_load.py PORT [CONNECTIONS]

Connections are kept alive where the server does.
"""

from __future__ import annotations

import http.client
import sys

import phases
from answers import item


class Connection:
    """One connection, made anew when the server has closed it."""

    def __init__(self, port: int) -> None:
        self.http = http.client.HTTPConnection("127.0.0.1", port, timeout=30)

    def request(self, number: int) -> bool:
        if self.http.sock is None:
            # Sets TCP_NODELAY, too.
            self.http.connect()
        try:
            self.http.request("GET", f"/items/{number}")
            response = self.http.getresponse()
            return response.read() == item(number) and response.status == 200
        except BaseException:
            self.http.close()
            raise


if __name__ == "__main__":
    count = int(sys.argv[2]) if len(sys.argv) > 2 else 8
    phases.serve([Connection(int(sys.argv[1])).request for _ in range(count)])
