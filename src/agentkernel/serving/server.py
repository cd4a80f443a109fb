"""The server: its folder, its token, its queue and its workers, from start to end."""

from __future__ import annotations

import os
import secrets
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import uvicorn

from agentkernel.domain.errors import RunBusy, SettingError, one_line
from agentkernel.domain.settings import Settings
from agentkernel.runtime.loopback import (
    TOKEN_BYTES,
    BearerToken,
    OwnNames,
    authority,
    checked_token,
    http_server,
    is_loopback,
    listening,
    own_names,
    token_of,
)
from agentkernel.serving.app import Endpoints, Judging, make_app
from agentkernel.serving.pool import Pool
from agentkernel.serving.submission_queue import Queue
from agentkernel.storage.files import hold_file_lock, make_folder, read_regular_text, write_atomic
from agentkernel.tools.judge.settings import judge_sha256

TOKEN_VARIABLE = "AGENTKERNEL_SERVE_TOKEN"
TOKEN_FILE = "token"
LOCK_FILE = "server.lock"
LOCK_WAIT_S = 2.0
OWN_MODE, OPEN_TO_OTHERS = 0o600, 0o077
Say = Callable[[str], None]


@dataclass(frozen=True)
class ServeRequest:
    """Where a server listens, and what it keeps and judges. `place` names where that happens, as a
    Work has it."""

    host: str
    port: int
    state: Path
    token_file: Path | None
    most_queued: int
    settings: Settings
    place: str


def serve(asked: ServeRequest, make_pool: Callable[[Queue], Pool], say: Say) -> None:
    """Serve until interrupted, which raises KeyboardInterrupt once all is kept.

    Raises RunBusy where another server uses the folder, SettingError for a token that cannot be
    used, and what the pool raises.
    """
    make_folder(asked.state)
    busy = RunBusy(
        f"Another server uses the folder {str(asked.state)!r}. Expected one server a folder. "
        "Next: name another folder with --state."
    )
    with (
        hold_file_lock(asked.state / LOCK_FILE, busy, LOCK_WAIT_S),
        listening(asked.host, asked.port) as listener,
        Queue(asked.state, asked.most_queued) as queue,
    ):
        token, source = find_token(asked.token_file or asked.state / TOKEN_FILE)
        pool = make_pool(queue)
        judging = Judging(asked.settings, asked.place, judge_sha256(), pool.workers)
        port = listener.getsockname()[1]
        ends = Endpoints(queue, judging, lambda: server.should_exit)
        guarded = OwnNames(make_app(ends), own_names(asked.host, port))
        server = http_server(BearerToken(guarded, token))
        try:
            for line in (queue.mended, *_start_lines(asked, port, pool, queue, source)):
                if line:
                    say(line)
            with _Working(pool, server):
                server.run(sockets=[listener])
        finally:
            queue.release()
            left = queue.counts()
            say(
                f"Ended. Kept in {str(asked.state)!r}: {left.done} finished, {left.queued} waiting;"
                " the same command goes on."
            )


class _Working:
    """While it holds, `pool` works in a thread; where that fails, the server ends and the failure
    is raised here."""

    def __init__(self, pool: Pool, server: uvicorn.Server) -> None:
        self._pool, self._server = pool, server
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="pool", daemon=True)

    def _run(self) -> None:
        try:
            self._pool.run()
        except BaseException as error:  # noqa: BLE001 - raised in the main thread
            self._failure = error
        finally:
            self._server.should_exit = True

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._pool.stop()
        self._thread.join()
        if self._failure is not None:
            raise self._failure


def find_token(path: Path) -> tuple[str, str]:
    """The token and, in words, where it stands: that of the environment, which no child inherits,
    else that of the file, made where there is none. Raises SettingError, OutputError."""
    given = token_of(TOKEN_VARIABLE)
    if given:
        os.environ.pop(TOKEN_VARIABLE, None)
        return given, f"that of {TOKEN_VARIABLE}"
    if not path.exists():
        token = secrets.token_urlsafe(TOKEN_BYTES)
        write_atomic(path, f"{token}\n", "--token-file", OWN_MODE)
        return token, f"in {str(path)!r}, which only you may read"
    name = f"The token in {str(path)!r}"
    try:
        mode, text = path.stat().st_mode, read_regular_text(path, typed=True)
    except (OSError, UnicodeDecodeError) as error:
        raise SettingError(
            f"{name} cannot be read: {one_line(error)}. Expected a line of ASCII. "
            "Next: name another file with --token-file."
        ) from error
    if mode & OPEN_TO_OTHERS:
        raise SettingError(
            f"{name} can be read by others. Expected mode 600. Next: remove it, and a new one is "
            "made; or chmod 600."
        )
    return checked_token(text.strip(), name), f"in {str(path)!r}"


def _start_lines(
    asked: ServeRequest, port: int, pool: Pool, queue: Queue, source: str
) -> tuple[str, ...]:
    kept = queue.counts()
    lines = [
        f"Serving on http://{authority(asked.host, port)}: {pool.workers} at a time on "
        f"{asked.place}, at most {queue.most} waiting.",
        f"Token: {source}.",
    ]
    if kept.queued or kept.done:
        lines.append(f"Kept from before: {kept.done} finished, {kept.queued} waiting.")
    if not is_loopback(asked.host):
        lines.append("Other machines reach this address, and the token goes over it unencrypted.")
    return tuple(lines)
