"""`fedsilo run --dashboard` serves the dashboard of this run's jobs on this machine while they go on."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager

from typing_extensions import override

from fedsilo.api.loading import JobManifest
from fedsilo.api.observed import uid_of
from fedsilo.dashboard.feed import Feed
from fedsilo.dashboard.server import JOBS, LocalAccess, serving
from fedsilo.dashboard.snapshot import JobsSnapshot
from fedsilo.local.display import Display
from fedsilo.local.job_view import JobView
from fedsilo.local.progress import RunProgress
from fedsilo.local.stopping import StopRequest

HOST = "127.0.0.1"

LAST_FETCH_SECONDS = 2.0
"""Time at the end in which open pages fetch the outcome."""


class Dashboard:
    """The jobs of one run, served by a thread of its own.

    :param manifests: in the order in which they run.
    """

    def __init__(self, manifests: Sequence[JobManifest]) -> None:
        self._views = [JobView(manifest) for manifest in manifests]
        self._loop = asyncio.new_event_loop()
        self._feed = Feed(self.snapshot)
        self._ended = asyncio.Event()

    @contextmanager
    def serving(self) -> Iterator[str]:
        """Serve until the end of the block, and until open pages have fetched the outcome; yields the address.

        :raises OSError: when no port is free.
        """
        port: Future[int] = Future()
        thread = threading.Thread(target=self._run, args=(port,), name="dashboard", daemon=True)
        thread.start()
        try:
            yield f"http://{HOST}:{port.result()}/"
        finally:
            if not port.exception():
                self._loop.call_soon_threadsafe(self._ended.set)
            thread.join()

    def attach(self, display: Display, manifest: JobManifest) -> Display:
        """A display that shows this job on the dashboard, too."""
        view = next(view for view in self._views if view.manifest is manifest)
        return _AttachedDisplay(display, view, self)

    def notify(self) -> None:
        """Wake the open pages."""
        self._loop.call_soon_threadsafe(self._feed.notify)

    def snapshot(self) -> JobsSnapshot:
        """All jobs as they are now."""
        return JobsSnapshot(
            place="machine",
            jobs=[view.job for view in self._views],
            events=[event for view in self._views for event in view.events],
            receipts={uid_of(view.job): view.receipts for view in self._views},
        )

    def _run(self, port: Future[int]) -> None:
        try:
            self._loop.run_until_complete(self._serve(port))
        except OSError as error:
            port.set_exception(error)
        finally:
            self._loop.close()

    async def _serve(self, port: Future[int]) -> None:
        async with serving(self._feed, LocalAccess(), HOST, 0, views=JOBS) as found:
            port.set_result(found)
            await self._ended.wait()
            if self._feed.watchers:
                await asyncio.sleep(LAST_FETCH_SECONDS)


class _AttachedDisplay(Display):
    """Shows progress in two places."""

    def __init__(self, display: Display, view: JobView, dashboard: Dashboard) -> None:
        self._display = display
        self._view = view
        self._dashboard = dashboard

    @override
    @contextmanager
    def showing(self, progress: RunProgress) -> Iterator[None]:
        stopped = False
        try:
            with self._display.showing(progress):
                yield
        except StopRequest:
            stopped = True
            raise
        finally:
            progress.read()
            self._view.end(progress, stopped)
            self._dashboard.notify()

    @override
    def update(self, progress: RunProgress) -> None:
        self._display.update(progress)
        if self._view.update(progress):
            self._dashboard.notify()
