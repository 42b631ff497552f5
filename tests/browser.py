"""A real headless browser: Chromium, told what to do over a pipe (the DevTools protocol)."""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

# What it takes on a busy machine is a matter of seconds; beyond this it hangs.
HANGS_AFTER_S = 120

# The protocol wants its ends as descriptors 3 and 4.
BEGIN = """
import os, sys
for place, end in enumerate(sys.argv[1:3]):
    os.dup2(int(end), 100 + place)
os.dup2(100, 3)
os.dup2(101, 4)
os.execvp(sys.argv[3], sys.argv[3:])
"""

CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")


class Browser:
    """One page in a browser of its own, without a network."""

    def __init__(self, width: int = 1280, height: int = 800, dark: bool = False) -> None:
        assert CHROMIUM is not None
        self._folder = tempfile.TemporaryDirectory(
            prefix="deconvoy-browser-", ignore_cleanup_errors=True
        )
        theirs_in, self._to = os.pipe()
        self._from, theirs_out = os.pipe()
        self._buffer = b""
        self._number = 0
        self.log: list[dict[str, Any]] = []
        command = [
            *(CHROMIUM, "--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"),
            *("--disable-dev-shm-usage", "--no-first-run", "--disable-background-networking"),
            *("--host-resolver-rules=MAP * ~NOTFOUND", f"--user-data-dir={self._folder.name}"),
            *("--remote-debugging-pipe", "about:blank"),
        ]
        self._process = subprocess.Popen(
            [sys.executable, "-c", BEGIN, str(theirs_in), str(theirs_out), *command],
            pass_fds=(theirs_in, theirs_out),
            stderr=subprocess.DEVNULL,
        )
        os.close(theirs_in)
        os.close(theirs_out)
        targets = self._call("Target.getTargets")["targetInfos"]
        target = next(one for one in targets if one["type"] == "page")["targetId"]
        attached = self._call("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        self.call("Page.enable")
        self.call("Runtime.enable")
        self.call("Log.enable")
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=False,
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])

    def _call(self, method: str, session: str | None = None, **parameters: Any) -> dict[str, Any]:
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": parameters}
        if session is not None:
            message["sessionId"] = session
        os.write(self._to, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._next()
            if answer.get("id") == self._number:
                assert "error" not in answer, answer
                result: dict[str, Any] = answer["result"]
                return result
            if answer.get("method") in ("Runtime.exceptionThrown", "Log.entryAdded"):
                self.log.append(answer["params"])

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            more = os.read(self._from, 1 << 20)
            assert more, "the browser is gone"
            self._buffer += more
        message, _, self._buffer = self._buffer.partition(b"\0")
        parsed: dict[str, Any] = json.loads(message)
        return parsed

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        return self._call(method, self._session, **parameters)

    def open(self, url: str, ready: str) -> None:
        """Loads a page and waits until the expression `ready` is true in it."""
        self.call("Page.navigate", url=url)
        self.wait(ready)

    def wait(self, condition: str) -> None:
        """Waits until an expression is true; it is looked at in each frame."""
        self.run(
            "new Promise((done) => { const look = () => {"
            f" let yes = false; try {{ yes = {condition}; }} catch {{ }}"
            " yes ? done(true) : setTimeout(look, 20); }; look(); })"
        )

    def run(self, expression: str) -> Any:
        """The value of an expression in the page."""
        answer = self.call(
            "Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True
        )
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def press(self, key: str) -> None:
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=key)

    def mouse(self, kind: str, x: float, y: float, **more: Any) -> None:
        self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, **more)

    def screenshot(self, path: Path) -> None:
        shot = self.call("Page.captureScreenshot", format="png")["data"]
        path.write_bytes(base64.b64decode(shot))

    def close(self) -> None:
        # It ends its own processes before itself.
        self._call("Browser.close")
        self._process.wait(HANGS_AFTER_S)
        os.close(self._to)
        os.close(self._from)
        self._folder.cleanup()

    def __enter__(self) -> Browser:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
