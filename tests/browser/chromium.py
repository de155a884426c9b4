"""A headless Chromium over the DevTools protocol: messages that end in NUL on two pipes, so nothing listens."""

from __future__ import annotations

import base64
import json
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.waiting import wait_for

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")


def find_chromium() -> str | None:
    """The browser's program; CHROMIUM names it where it is not on PATH."""
    return os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, NAMES)), None)


class Chromium:
    """The browser, and one tab of it at a time."""

    def __init__(self, program: str, folder: Path) -> None:
        to_read, self._write = os.pipe()
        self._read, to_write = os.pipe()
        quiet = ("--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync")
        own = ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars")
        arguments = [program, *own, *quiet, f"--user-data-dir={folder}", "--remote-debugging-pipe", "about:blank"]
        script = f'exec "$0" "$@" 3<&{to_read} 4>&{to_write}'
        self._process = subprocess.Popen(
            ["bash", "-c", script, *arguments],
            pass_fds=(to_read, to_write),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        os.close(to_read)
        os.close(to_write)
        self._number = 0
        self._rest = b""
        self.events: list[dict[str, Any]] = []
        self.session = ""

    def close(self) -> None:
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        os.close(self._write)
        os.close(self._read)

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Ask, and wait for the answer; what happens meanwhile is in ``events``."""
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": parameters}
        if self.session:
            message["sessionId"] = self.session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        while (answer := self._next()).get("id") != self._number:
            self.events.append(answer)
        assert "error" not in answer, f"{method}: {answer['error']}"
        return answer["result"]

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._rest:
            piece = os.read(self._read, 1 << 20)
            assert piece, "the browser has ended"
            self._rest += piece
        one, _, self._rest = self._rest.partition(b"\0")
        return json.loads(one)

    def new_tab(self) -> None:
        """A fresh tab, in which everything that could be wrong is noted."""
        self.session = ""
        for target in self.call("Target.getTargets")["targetInfos"]:
            if target["type"] == "page" and target["url"] != "about:blank":
                self.call("Target.closeTarget", targetId=target["targetId"])
        tab = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=tab, flatten=True)["sessionId"]
        self.events = []
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def show(self, address: str, *, width: int = 1200, height: int = 900, dark: bool = False) -> None:
        """Open an address, and wait until it is drawn."""
        self.new_tab()
        self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])
        self.call("Page.navigate", url=address)
        self.until("document.readyState === 'complete'")
        self.until("performance.getEntriesByName('first-contentful-paint').length")

    def run(self, script: str) -> Any:
        """The value of an expression in the page; of a promise what it comes to."""
        answer = self.call("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def until(self, script: str) -> Any:
        """The value of an expression, once it is true."""
        return wait_for(lambda: self.run(script), running=[self._process])

    def picture(self, path: Path, *, whole: bool = True) -> None:
        """Write what is shown as PNG."""
        path.write_bytes(
            base64.b64decode(self.call("Page.captureScreenshot", captureBeyondViewport=whole, format="png")["data"])
        )

    @property
    def faults(self) -> list[str]:
        """What the console was told that it should not have been."""
        self.run("1")
        found = []
        for event in self.events:
            told = event.get("params", {})
            if event.get("method") == "Runtime.exceptionThrown":
                found.append(str(told["exceptionDetails"]))
            if event.get("method") == "Runtime.consoleAPICalled" and told["type"] in ("error", "warning"):
                found.append(str(told["args"]))
            if event.get("method") == "Log.entryAdded" and told["entry"]["level"] in ("error", "warning"):
                found.append(str(told["entry"]))
        return found

    @property
    def requests(self) -> list[str]:
        """Every address that was asked for."""
        return [
            event["params"]["request"]["url"]
            for event in self.events
            if event.get("method") == "Network.requestWillBeSent"
        ]


@contextmanager
def chromium(program: str) -> Iterator[Chromium]:
    """A browser that is gone afterwards, with what it has kept."""
    with tempfile.TemporaryDirectory(prefix="allranks-browser-", ignore_cleanup_errors=True) as folder:
        browser = Chromium(program, Path(folder))
        try:
            yield browser
        finally:
            browser.close()
