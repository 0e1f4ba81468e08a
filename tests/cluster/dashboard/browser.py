"""Headless Chromium over its DevTools protocol: pages, keys, screenshots, the accessibility tree."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Any

import aiohttp

PROGRAM = "chromium-headless-shell"

PATIENCE_SECONDS = 30.0
"""How long anything may take."""

NETWORK_CHANGED = "net::ERR_NETWORK_CHANGED"

KEYS: Mapping[str, Mapping[str, Any]] = {
    "Tab": {"code": "Tab", "windowsVirtualKeyCode": 9},
    "Enter": {"code": "Enter", "windowsVirtualKeyCode": 13, "text": "\r"},
}


class Page:
    """What a socket of the protocol leads to: one tab, or the browser as a whole."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._socket = socket
        self._number = 0
        self._answers: dict[int, asyncio.Future[Any]] = {}
        self._reader = asyncio.create_task(self._read())
        self.complaints: list[str] = []
        """Errors of scripts, and what the browser refused to load or run."""
        self._network_changed = False

    async def call(self, method: str, **parameters: Any) -> Any:
        """One command of the protocol."""
        self._number += 1
        answer = self._answers[self._number] = asyncio.get_running_loop().create_future()
        await self._socket.send_json({"id": self._number, "method": method, "params": parameters})
        async with asyncio.timeout(PATIENCE_SECONDS):
            return await answer

    async def begin(self) -> None:
        """Have the browser report all events of the page."""
        for domain in ("Page", "Runtime", "Log", "Network", "Accessibility"):
            await self.call(f"{domain}.enable")

    async def show(
        self,
        address: str,
        *,
        width: int = 1100,
        height: int = 900,
        dark: bool = False,
        token: str | None = None,
        calm: bool = True,
    ) -> None:
        """Open an address on a screen of this size."""
        phone = {"deviceScaleFactor": 1, "mobile": width < 600}
        await self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, **phone)
        await self.call(
            "Emulation.setEmulatedMedia",
            features=[
                {"name": "prefers-color-scheme", "value": "dark" if dark else "light"},
                {"name": "prefers-reduced-motion", "value": "reduce" if calm else "no-preference"},
            ],
        )
        await self.call("Emulation.setTimezoneOverride", timezoneId="UTC")
        await self._navigate(address)
        shown = "document.querySelector('main h1, main form')"
        await self.wait_until(shown, f"content of {address}", again=lambda: self._navigate(address))

    async def _navigate(self, address: str) -> None:
        self._network_changed = False
        await self.call("Page.navigate", url="about:blank")
        await self.call("Page.navigate", url=address)

    async def value(self, expression: str) -> Any:
        """What a JavaScript expression comes to; a promise is waited for."""
        answer = await self.call(
            "Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True
        )
        if "exceptionDetails" in answer:
            raise AssertionError(f"{expression}: {answer['exceptionDetails']}")
        return answer["result"].get("value")

    async def wait_until(
        self, expression: str, what: str, again: Callable[[], Awaitable[None]] | None = None
    ) -> None:
        """Wait for an expression to be true.

        :param again: called when the browser has given up what it was loading because the machine's network changed,
            as it does when a pod comes or goes.
        """
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                while not await self.value(f"Boolean({expression})"):
                    if again is not None and self._network_changed:
                        await again()
                    await asyncio.sleep(0.05)
        except TimeoutError:
            text = await self.value("document.body.innerText")
            raise AssertionError(
                f"waited in vain for {what}; the page says:\n{text}\n{self.complaints}"
            ) from None

    async def press(self, key: str) -> None:
        """Press and leave a key."""
        for kind in ("keyDown", "keyUp"):
            await self.call("Input.dispatchKeyEvent", type=kind, key=key, **KEYS[key])

    async def type(self, text: str) -> None:
        """Write into what has the focus."""
        await self.call("Input.insertText", text=text)

    async def text(self) -> str:
        """What can be read."""
        return str(await self.value("document.querySelector('main').innerText"))

    async def picture(self, path: Path, whole: bool = True) -> None:
        """A screenshot, of the whole page or of what is seen at first."""
        height = await self.value("document.documentElement.scrollHeight") if whole else None
        width = await self.value("innerWidth")
        size = {"clip": {"x": 0, "y": 0, "width": width, "height": height, "scale": 1}} if whole else {}
        answer = await self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole, **size)
        path.write_bytes(base64.b64decode(answer["data"]))

    async def tree(self) -> list[dict[str, Any]]:
        """Role, name and properties of everything that a screen reader is told of."""
        nodes = (await self.call("Accessibility.getFullAXTree"))["nodes"]
        return [
            {
                "role": node["role"]["value"],
                "name": node.get("name", {}).get("value", ""),
                **{item["name"]: item["value"].get("value") for item in node.get("properties", ())},
            }
            for node in nodes
            if not node["ignored"]
        ]

    async def close(self) -> None:
        self._reader.cancel()
        with suppress(asyncio.CancelledError):
            await self._reader
        await self._socket.close()

    async def _read(self) -> None:
        async for message in self._socket:
            content = json.loads(message.data)
            if "id" in content:
                answer = self._answers.pop(content["id"])
                if answer.done():
                    continue
                if "error" in content:
                    answer.set_exception(AssertionError(str(content["error"])))
                else:
                    answer.set_result(content["result"])
            elif content["method"] == "Runtime.exceptionThrown":
                self.complaints.append(str(content["params"]["exceptionDetails"]))
            elif content["method"] == "Network.loadingFailed":
                self._network_changed |= content["params"]["errorText"] == NETWORK_CHANGED
            elif content["method"] == "Log.entryAdded":
                entry = content["params"]["entry"]
                if entry["level"] == "error" and entry["source"] != "network":
                    self.complaints.append(entry["text"])


@contextmanager
def browser() -> Iterator[int]:
    """A headless browser that ends with the block; the port of its DevTools protocol."""
    program = shutil.which(PROGRAM)
    assert program, f"{PROGRAM} is not there; hack.cluster.packages installs it"
    with tempfile.TemporaryDirectory(prefix="browser-", ignore_cleanup_errors=True) as profile:
        # Root may not have a sandbox of its own; the pages are this project's.
        process = subprocess.Popen(
            [
                *(program, "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-proxy-server"),
                *("--remote-debugging-port=0", f"--user-data-dir={profile}", "about:blank"),
            ],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            # The command is a script that starts the browser: only the whole group ends with it.
            start_new_session=True,
        )
        try:
            yield _port(Path(profile) / "DevToolsActivePort", process)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


@asynccontextmanager
async def fresh_page(port: int) -> AsyncIterator[Page]:
    """An empty tab in a browser, with cookies and storage of its own, which closes with the block."""
    async with aiohttp.ClientSession() as session:
        root = f"http://127.0.0.1:{port}"
        async with session.get(f"{root}/json/version") as response:
            address = (await response.json())["webSocketDebuggerUrl"]
        whole = Page(await session.ws_connect(address, max_msg_size=0))
        context = (await whole.call("Target.createBrowserContext"))["browserContextId"]
        target = await whole.call("Target.createTarget", url="about:blank", browserContextId=context)
        tab = f"ws://127.0.0.1:{port}/devtools/page/{target['targetId']}"
        page = Page(await session.ws_connect(tab, max_msg_size=0))
        try:
            await page.begin()
            yield page
        finally:
            await page.close()
            await whole.call("Target.disposeBrowserContext", browserContextId=context)
            await whole.close()


def _port(file: Path, process: subprocess.Popen[bytes]) -> int:
    end = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < end:
        assert process.poll() is None, f"{PROGRAM} ended with {process.returncode}"
        if file.exists() and (lines := file.read_text().splitlines()):
            return int(lines[0])
        time.sleep(0.05)
    raise AssertionError(f"{PROGRAM} does not say where it listens")
