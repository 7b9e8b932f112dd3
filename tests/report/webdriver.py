"""A browser over WebDriver, as much of it as the tests need, with nothing but the standard library.

    with Browser() as b:
        b.open("file:///...")
        b.run("return document.title")
"""

import base64
import json
import shutil
import socket
import subprocess
import time
import urllib.error
import urllib.request


class BrowserError(Exception):
    """What the driver answers instead of a value."""


class Browser:
    def __init__(self, width=1400, height=900):
        self.size = f"{width},{height}"

    def __enter__(self):
        driver = shutil.which("chromedriver")
        if not driver:
            raise BrowserError("there is no chromedriver: scripts/setup.sh report installs it")
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            port = s.getsockname()[1]
        self._process = subprocess.Popen([driver, f"--port={port}"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self._base = f"http://127.0.0.1:{port}"
        try:
            self._wait_for_driver()
            arguments = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", f"--window-size={self.size}"]
            options = {"browserName": "chrome", "goog:loggingPrefs": {"browser": "ALL"}, "goog:chromeOptions": {"args": arguments}}
            answer = self._ask("POST", "/session", {"capabilities": {"alwaysMatch": options}})
            self._session = f"/session/{answer['sessionId']}"
        except BaseException:
            self._process.kill()
            raise
        return self

    def __exit__(self, *exception):
        try:
            self._ask("DELETE", self._session)
        finally:
            self._process.terminate()
            self._process.wait()

    def _wait_for_driver(self):
        end = time.monotonic() + 60
        while True:
            try:
                if self._ask("GET", "/status")["ready"]:
                    return
            except OSError:
                pass
            if time.monotonic() > end:
                raise BrowserError("chromedriver does not answer")
            time.sleep(0.05)

    def _ask(self, method, path, body=None):
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self._base + path, data, {"Content-Type": "application/json"}, method=method)
        try:
            with urllib.request.urlopen(request, timeout=120) as answer:
                return json.load(answer)["value"]
        except urllib.error.HTTPError as e:
            value = json.loads(e.read())["value"]
            raise BrowserError(f"{value['error']}: {value['message'].splitlines()[0]}") from None

    def open(self, url):
        self._ask("POST", self._session + "/url", {"url": url})

    def run(self, script, *args):
        """The value of a script, the body of a function."""
        return self._ask("POST", self._session + "/execute/sync", {"script": script, "args": list(args)})

    def element(self, selector):
        (value,) = self._ask("POST", self._session + "/element", {"using": "css selector", "value": selector}).values()
        return f"{self._session}/element/{value}"

    def click(self, selector):
        self._ask("POST", self.element(selector) + "/click", {})

    def type(self, selector, text):
        self._ask("POST", self.element(selector) + "/value", {"text": text})

    def emulate_dark(self, dark=True):
        features = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        self._ask("POST", self._session + "/goog/cdp/execute", {"cmd": "Emulation.setEmulatedMedia", "params": {"features": features}})

    def log(self):
        """What came to the console since this was last asked."""
        return [e for e in self._ask("POST", self._session + "/se/log", {"type": "browser"})]

    def screenshot(self, path):
        with open(path, "wb") as f:
            f.write(base64.b64decode(self._ask("GET", self._session + "/screenshot")))
