"""Which of the candidate's kernels does a CUDA graph hold, and which run when it is replayed?

A kernel that is launched while torch records a graph does not run then; it runs with each replay.
A graph that is recorded past torch.cuda.CUDAGraph may hold anything: replaying one is noted.
"""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

Recording = Callable[[], bool]
"""Whether the current stream is recording."""


class CudaGraphs:
    """Kernels by graph, as numbers of whoever asks."""

    def __init__(self, recording: Recording) -> None:
        self._recording = recording
        self._kernels: weakref.WeakKeyDictionary[object, list[int]] = weakref.WeakKeyDictionary()
        self._open: list[int] | None = None

    def take(self, kernel: int) -> bool:
        """Note `kernel` as part of the graph that is being recorded; False where none is."""
        if self._open is None or not self._recording():
            return False
        self._open.append(kernel)
        return True

    def watch(
        self,
        kind: type[torch.cuda.CUDAGraph],
        begun: Callable[[], None],
        replayed: Callable[[Sequence[int]], bool],
    ) -> None:
        """From now on `begun` hears of each recording, and `replayed` of each replay with the
        kernels of the graph; where it says so, nothing is replayed."""
        begin, end, replay = kind.capture_begin, kind.capture_end, kind.replay

        def capture_begin(graph: object, *args: object, **kwargs: object) -> object:
            begun()
            self._open = self._kernels[graph] = []
            return begin(graph, *args, **kwargs)  # type: ignore[arg-type]

        def capture_end(graph: object) -> object:
            self._open = None
            return end(graph)  # type: ignore[arg-type]

        def replay_graph(graph: object) -> object:
            return None if replayed(self._kernels.get(graph, ())) else replay(graph)  # type: ignore[arg-type]

        kind.capture_begin = capture_begin  # type: ignore[assignment, method-assign]
        kind.capture_end = capture_end  # type: ignore[assignment, method-assign]
        kind.replay = replay_graph  # type: ignore[assignment, method-assign]

    def watch_base(self, base: type, unseen: Callable[[], None]) -> None:
        """`unseen` hears of each replay, by whatever way, of a graph that `watch` has not seen
        recorded. `base`: what torch.cuda.CUDAGraph is made from and hands its calls to."""
        replay = base.replay  # type: ignore[attr-defined]

        def replay_graph(graph: object) -> object:
            if graph not in self._kernels:
                unseen()
            return replay(graph)

        # A type of C++ may refuse to be written to.
        with contextlib.suppress(TypeError, AttributeError):
            base.replay = replay_graph  # type: ignore[attr-defined]
