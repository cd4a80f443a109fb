"""A headless Chromium that a test drives through a pipe, in the DevTools protocol.

https://chromedevtools.github.io/devtools-protocol/
"""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any

from agentkernel.tools.sandbox.watchdog import readable

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
PROGRAM = next((path for name in NAMES if (path := shutil.which(name))), None)
PATIENCE_S = 60.0
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--hide-scrollbars",
    "--no-first-run",
    "--disable-background-networking",
    "--remote-debugging-pipe",
)


class Chromium:
    """One tab. `complaints` holds what the console and the page's own errors said."""

    def __init__(self, profile: Path) -> None:
        assert PROGRAM is not None
        to_browser, self.commands = os.pipe()
        self.answers, from_browser = os.pipe()
        shell = f'exec 3<&{to_browser} 4>&{from_browser} && exec "$0" "$@"'
        self.process = subprocess.Popen(
            ["bash", "-c", shell, PROGRAM, *FLAGS, f"--user-data-dir={profile}", "about:blank"],
            pass_fds=(to_browser, from_browser),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(to_browser)
        os.close(from_browser)
        self.buffer, self.number, self.session = b"", 0, None
        self.complaints: list[str] = []
        self.events: list[str] = []
        targets = self.call("Target.getTargets")["targetInfos"]
        page = next(item["targetId"] for item in targets if item["type"] == "page")
        attached = self.call("Target.attachToTarget", targetId=page, flatten=True)
        self.session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def close(self) -> None:
        """End the process that was started here."""
        self.process.terminate()
        self.process.wait(20)
        os.close(self.commands)
        os.close(self.answers)

    def call(self, method: str, **parameters: object) -> dict[str, Any]:
        """The result of one command."""
        self.number += 1
        message: dict[str, object] = {
            "id": self.number,
            "method": method,
            "params": parameters,
        }
        if self.session is not None:
            message["sessionId"] = self.session
        os.write(self.commands, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._read()
            if answer.get("id") == self.number:
                assert "error" not in answer, answer
                return dict(answer["result"])
            self._note(answer)

    def open(self, url: str, width: int = 1400, height: int = 1000, media: str = "light") -> None:
        """Load the page in a window of this size and wait until it is there."""
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=width < 600,
        )
        features = [{"name": "prefers-color-scheme", "value": media}]
        self.call("Emulation.setEmulatedMedia", features=features)
        for place in ("about:blank", url):  # a mere change of the fragment would load nothing
            self.events.clear()
            self.call("Page.navigate", url=place)
            while "Page.loadEventFired" not in self.events:
                self._note(self._read())

    def value(self, expression: str) -> Any:
        """What a JavaScript expression gives in the page."""
        found = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    def wait(self, condition: str) -> None:
        """Until a JavaScript expression is true in the page."""
        until = time.monotonic() + PATIENCE_S
        while not self.value(condition):
            assert time.monotonic() < until, f"never true: {condition}"
            time.sleep(0.05)

    def click(self, selector: str) -> None:
        """Press the mouse in the middle of the first element that fits."""
        spot = self.value(
            f"(() => {{ const e = document.querySelector({json.dumps(selector)});"
            "e.scrollIntoView({block: 'center'}); const r = e.getBoundingClientRect();"
            "return [r.x + r.width / 2, r.y + r.height / 2]; })()"
        )
        for kind in ("mousePressed", "mouseReleased"):
            self.call(
                "Input.dispatchMouseEvent",
                type=kind,
                x=spot[0],
                y=spot[1],
                button="left",
                clickCount=1,
            )

    def type(self, text: str) -> None:
        """Write where the cursor is."""
        self.call("Input.insertText", text=text)

    def picture(self, path: Path) -> None:
        """The whole page as a PNG."""
        shot = self.call("Page.captureScreenshot", captureBeyondViewport=True)
        path.write_bytes(base64.b64decode(shot["data"]))

    def _note(self, message: dict[str, Any]) -> None:
        method, parameters = message.get("method", ""), message.get("params", {})
        self.events.append(method)
        if method == "Runtime.exceptionThrown":
            self.complaints.append(json.dumps(parameters["exceptionDetails"]))
        elif method == "Log.entryAdded" and parameters["entry"]["level"] in ("error", "warning"):
            self.complaints.append(parameters["entry"]["text"])
        elif method == "Runtime.consoleAPICalled":
            self.complaints.append(json.dumps(parameters["args"]))
        elif method == "Network.requestWillBeSent":
            url = parameters["request"]["url"]
            if not url.startswith(("file:", "about:", "data:")):
                self.complaints.append(f"asks the network: {url}")

    def _read(self) -> dict[str, Any]:
        until = time.monotonic() + PATIENCE_S
        while b"\0" not in self.buffer:
            assert readable((self.answers,), max(until - time.monotonic(), 0)), (
                "the browser does not answer"
            )
            more = os.read(self.answers, 1 << 20)
            assert more, "the browser has ended"
            self.buffer += more
        text, self.buffer = self.buffer.split(b"\0", 1)
        return dict(json.loads(text))
