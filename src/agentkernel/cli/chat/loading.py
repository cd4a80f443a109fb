"""What is loaded on another thread while the prompt waits for input.

torch alone takes seconds to import, so the prompt comes first: the conversation, torch and the
problem load behind it. Work ahead of the first request swaps the process's stdout for a moment
and takes a core: it runs only while the prompt waits for input, never during a turn, so never
beside a step that is timed.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from agentkernel.tools.problem.loading import LoadedProblem


class IdleLock:
    """Held by the thread that converses, except while somebody types."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._busy = False
        self._over = False

    def busy(self) -> None:
        """From here on nobody else works. Waits for what is at work; Ctrl-C ends the wait."""
        if not self._busy:
            self._lock.acquire()
            self._busy = True

    def free(self) -> None:
        """From here on others may."""
        if self._busy:
            self._busy = False
            self._lock.release()

    def leave(self) -> None:
        """Nobody begins any more; whoever waits to begin gives up."""
        self._over = True
        self.free()

    @contextmanager
    def typing(self) -> Iterator[None]:
        """While somebody types, others may work."""
        self.free()
        try:
            yield
        finally:
            self.busy()

    @contextmanager
    def work(self) -> Iterator[bool]:
        """For the other thread: wait until somebody types; False where the session is over."""
        with self._lock:
            yield not self._over


SLOW = "torch"
PRELOADED_FIRST = (
    "agentkernel.chat.session",
    "agentkernel.cli.rendering.live",
    "agentkernel.tools.problem.capture",
    "agentkernel.tools.roofline.model",
    "agentkernel.workflows.optimize",
    "agentkernel.knowledge.base",
)
"""What answers and steps import, seconds' worth of it."""
PRELOADED_LAST = (
    "torch._dynamo",
    "torch.export._trace",
    "chromadb",
    "chromadb.api.client",
    "chromadb.api.rust",
    "tokenizers",
    "safetensors.numpy",
    "agentkernel.cli.rendering.replies",
    "agentkernel.cli.knowledge.search",
)
"""What looking ahead and a search in the knowledge import; nobody needs them at once."""


class BackgroundLoad:
    """A problem that loads on another thread, with all that the first step needs. `load` None: a
    session that is opened again has its own.

    `start` begins with what the first answer needs, and tells of an error at once. What looks
    ahead runs while `idle` is free; it is quiet, and where it fails the first request for it says
    why.
    """

    def __init__(self, load: Callable[[], LoadedProblem] | None = None) -> None:
        self.idle = IdleLock()
        self._load = load
        self._pool: ThreadPoolExecutor | None = None
        self._first: Future[object] | None = None
        self._problem: Future[LoadedProblem] | None = None

    def start(
        self,
        on_failed: Callable[[BaseException], None],
        *ahead: Callable[[], object],
        first: Callable[[], object] | None = None,
    ) -> None:
        """Begin on another thread: `first`, the problem, and last `ahead`, one after the other."""

        def tell(done: Future[Any]) -> None:
            error = None if done.cancelled() else done.exception()
            if error is not None:
                on_failed(error)

        self._pool = ThreadPoolExecutor(max_workers=1, thread_name_prefix="loading")
        if first is not None:
            self._first = self._pool.submit(first)
            self._first.add_done_callback(tell)
        self._pool.submit(import_module, SLOW)
        if self._load is not None:
            self._problem = self._pool.submit(self._load)
            self._problem.add_done_callback(tell)
        for name in (*PRELOADED_FIRST, *PRELOADED_LAST):
            self._pool.submit(import_module, name)
        for look in ahead:
            self._pool.submit(self._when_idle, look)

    def wait_first(self) -> None:
        """Wait for the end of `first`. Raises what it raised."""
        if self._first is not None:
            self._first.result()

    def _when_idle(self, look: Callable[[], object]) -> None:
        with self.idle.work() as goes_on:
            if goes_on:
                look()

    @property
    def ready(self) -> bool:
        """True where nobody has to wait for another thread."""
        return self._problem is None or self._problem.done()

    def problem(self) -> LoadedProblem:
        """Wait for it, or load it here where no thread does. Raises what loading it raised."""
        if self._problem is not None:
            return self._problem.result()
        assert self._load is not None
        return self._load()

    def leave(self) -> None:
        """Begin nothing more, and wait for what is at work: a thread inside torch's import must
        not be cut off by the end of the process."""
        self.idle.leave()
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)
