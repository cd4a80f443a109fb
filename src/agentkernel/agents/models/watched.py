"""How is an endpoint that falls silent left, whatever its client thinks of timeouts?"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Generic, NamedTuple, TypeVar

PieceT = TypeVar("PieceT")


class _Piece(NamedTuple, Generic[PieceT]):
    value: PieceT


class _End(NamedTuple):
    error: Exception | None


def read_with_timeout(
    pieces: Callable[[], Iterable[PieceT]], timeout_s: float, left_s: float = float("inf")
) -> Iterator[PieceT]:
    """What `pieces` gives, read by another thread.

    Raises TimeoutError after `timeout_s` of silence or `left_s` in all, and whatever reading
    raises. Pings on the line count as silence: they are no pieces.
    """
    heard: queue.SimpleQueue[_Piece[PieceT] | _End] = queue.SimpleQueue()
    left = threading.Event()
    reader = threading.Thread(target=_read, args=(pieces, heard, left), daemon=True)
    reader.start()
    deadline = time.monotonic() + left_s
    try:
        while True:
            item = _next(heard, timeout_s, deadline - time.monotonic())
            if isinstance(item, _End):
                if item.error is not None:
                    raise item.error
                return
            yield item.value
    finally:
        left.set()


def _next(
    heard: queue.SimpleQueue[_Piece[PieceT] | _End], timeout_s: float, left_s: float
) -> _Piece[PieceT] | _End:
    try:
        return heard.get(timeout=max(0.0, min(timeout_s, left_s)))
    except queue.Empty:
        text = f"no word for {timeout_s:g} s" if timeout_s < left_s else "its time is spent"
        raise TimeoutError(text) from None


def _read(
    pieces: Callable[[], Iterable[PieceT]],
    heard: queue.SimpleQueue[_Piece[PieceT] | _End],
    left: threading.Event,
) -> None:
    try:
        for value in pieces():
            if left.is_set():
                return
            heard.put(_Piece(value))
    except Exception as error:  # noqa: BLE001 - raised again in the thread that asked
        heard.put(_End(error))
    else:
        heard.put(_End(None))


__all__ = ["read_with_timeout"]
