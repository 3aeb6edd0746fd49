"""Headless Chromium over its debugging pipe: no library is needed, and no port is opened."""

import base64
import json
import os
import select
import shutil
import subprocess
import time

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
OPTIONS = [
    "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars", "--mute-audio",
    "--no-first-run", "--disable-extensions", "--disable-background-networking", "--remote-debugging-pipe",
]  # fmt: skip
PATIENCE = 60  # seconds for one answer


class Browser:
    """One page: ``call`` is a command of the DevTools protocol, ``evaluate`` a JavaScript expression."""

    def __init__(self, profile):
        read_end, self._write = os.pipe()
        self._read, write_end = os.pipe()
        # Chromium reads commands from file 3 and writes answers to file 4.
        command = ["bash", "-c", f'exec "$@" 3<&{read_end} 4>&{write_end}', "bash"]
        command += [CHROMIUM, *OPTIONS, f"--user-data-dir={profile}", "about:blank"]
        self._process = subprocess.Popen(
            command, pass_fds=(read_end, write_end), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        os.close(read_end)
        os.close(write_end)
        self._buffer, self._number, self._session = b"", 0, None
        self.events = []
        pages = self.call("Target.getTargets")["targetInfos"]
        page = next(target for target in pages if target["type"] == "page")
        self._session = self.call("Target.attachToTarget", targetId=page["targetId"], flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._process.terminate()
        self._process.wait(timeout=PATIENCE)
        os.close(self._read)
        os.close(self._write)

    def call(self, method, **parameters):
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._receive()
            if answer.get("id") == self._number:
                assert "error" not in answer, answer
                return answer["result"]
            self.events.append(answer)

    def _receive(self):
        deadline = time.monotonic() + PATIENCE
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._read], [], [], max(deadline - time.monotonic(), 0))
            assert ready, "Chromium does not answer"
            part = os.read(self._read, 1 << 16)
            assert part, "Chromium has ended"
            self._buffer += part
        message, self._buffer = self._buffer.split(b"\0", 1)
        return json.loads(message)

    def open(self, path, *, width=1280, height=900, dark=False, touch=False, fragment=""):
        """Load a file, wait until its script has run, and forget what happened before."""
        self.events.clear()
        scale = 2 if touch else 1
        self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=scale, mobile=touch
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])
        self.call("Page.navigate", url="about:blank")
        self.call("Page.navigate", url=path.resolve().as_uri() + fragment)
        for _ in range(600):
            if self.evaluate("location.protocol === 'file:' && document.readyState === 'complete'"):
                return
            time.sleep(0.05)
        raise AssertionError("the page does not load")

    def evaluate(self, expression):
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def press(self, key):
        code = {"key": key, "code": key, "text": key if len(key) == 1 else ""}
        self.call("Input.dispatchKeyEvent", type="keyDown", **code)
        self.call("Input.dispatchKeyEvent", type="keyUp", **{**code, "text": ""})

    def move(self, x, y):
        self.call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)

    def screenshot(self, file, selector=None):
        """The window, or the whole of an element."""
        clip = {}
        if selector is not None:
            box = self.evaluate(
                f"(() => {{ const b = document.querySelector({selector!r}).getBoundingClientRect();"
                " return {x: b.left + scrollX, y: b.top + scrollY, width: b.width, height: b.height, scale: 1}; })()"
            )
            clip = {"clip": box, "captureBeyondViewport": True}
        picture = self.call("Page.captureScreenshot", format="png", **clip)["data"]
        file.write_bytes(base64.b64decode(picture))

    def complaints(self):
        """Errors and warnings of the console, exceptions, and what the page tried to load from anywhere."""
        self.evaluate("1")  # what happened up to now has been reported
        found = []
        for event in self.events:
            what, details = event.get("method"), event.get("params", {})
            if what == "Runtime.exceptionThrown":
                found.append(details["exceptionDetails"])
            elif "readback" in str(details):  # advice on reading pixels, which these tests do and the page does not
                continue
            elif (what == "Log.entryAdded" and details["entry"]["level"] in ("error", "warning")) or (
                what == "Runtime.consoleAPICalled" and details["type"] in ("error", "warning", "assert")
            ):
                found.append(details)
            elif what == "Network.requestWillBeSent":
                address = details["request"]["url"]
                if not address.startswith(("data:", "file:", "about:")):
                    found.append(address)
        return found
