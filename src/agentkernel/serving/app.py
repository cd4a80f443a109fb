"""The endpoints: submissions go in, verdicts come out, all in JSON.

POST /submissions, GET /submissions/ID, GET /submissions/ID/result, GET /health. An error is
`{"error": "one line"}`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import anyio
from mcp.server.transport_security import RequestBodyLimitMiddleware
from pydantic import ValidationError
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from agentkernel.domain.errors import AgentKernelError, UnknownTarget, one_line
from agentkernel.domain.settings import Settings
from agentkernel.serving.submission import SOURCE_MOST, Submission, Work
from agentkernel.serving.submission_queue import Queue, Ticket
from agentkernel.tools.targets import find_target
from agentkernel.version import __version__

BODY_MOST = 8 * SOURCE_MOST
"""Bytes of a request: two files of the longest, with room for what JSON escapes."""
WAIT_MOST_S = 60.0
LOOK_AGAIN_S = 0.2
SHOWN_INPUT = 60


@dataclass(frozen=True)
class Judging:
    """How and where submissions are judged: the server's settings, and what a Work says of it."""

    settings: Settings
    place: str
    judge_sha256: str
    workers: int

    def work(self, submission: Submission) -> Work:
        """What is to be done. Raises UnknownTarget."""
        if submission.target is not None:
            find_target(submission.target)
        return Work(
            problem=submission.problem,
            candidate=submission.candidate,
            name=submission.name,
            profile=submission.profile,
            settings=submission.settings_in(self.settings),
            place=self.place,
            judge_sha256=self.judge_sha256,
        )


class Endpoints:
    """The endpoints over one queue. Nothing is waited for once the server is `ending`."""

    def __init__(self, queue: Queue, judging: Judging, ending: Callable[[], bool]) -> None:
        self._queue, self._judging, self._ending = queue, judging, ending

    async def submit(self, request: Request) -> Response:
        """202 for what is queued, 200 for what was known already; 400 and 422 for what cannot be
        read, 429 where the queue is full."""
        try:
            work = self._judging.work(Submission.model_validate_json(await request.body()))
        except ValidationError as error:
            return _refused_body(error)
        except UnknownTarget as error:
            return _refused(422, one_line(error))
        before = self._queue.ticket(work.id)
        ticket = before or self._queue.submit(work)
        if ticket is None:
            seconds = self._queue.retry_after_s(self._judging.workers)
            line = f"The queue is full: {self._queue.most} wait. Next: try again in {seconds} s."
            return _refused(429, line, {"Retry-After": str(seconds)})
        headers = {"Location": f"/submissions/{ticket.id}"}
        return JSONResponse(ticket._asdict(), 200 if before else 202, headers)

    async def status(self, request: Request) -> Response:
        """Where a submission stands."""
        return JSONResponse(self._ticket(request)._asdict())

    async def result(self, request: Request) -> Response:
        """The answer, or 202 with the status where there is none after `wait_s` seconds."""
        wait_s = _wait_s(request)
        ticket = self._ticket(request)
        with anyio.move_on_after(wait_s):
            while ticket.state != "done" and not self._ending():
                await anyio.sleep(LOOK_AGAIN_S)
                ticket = self._ticket(request)
        answer = self._queue.answer(ticket.id)
        if answer is None:
            return JSONResponse(ticket._asdict(), 202)
        return JSONResponse({**ticket._asdict(), **json.loads(answer)})

    async def health(self, request: Request) -> Response:
        """That the server answers, and how much it has to do."""
        return JSONResponse(
            {
                "status": "ok",
                "version": __version__,
                "place": self._judging.place,
                "workers": self._judging.workers,
                "most_queued": self._queue.most,
                **self._queue.counts()._asdict(),
            }
        )

    def _ticket(self, request: Request) -> Ticket:
        found = self._queue.ticket(request.path_params["id"])
        if found is None:
            raise HTTPException(404, "No such submission. Next: POST it to /submissions.")
        return found


def make_app(ends: Endpoints) -> Starlette:
    """The application, which whoever reaches it may use."""
    return Starlette(
        routes=[
            Route("/submissions", ends.submit, methods=["POST"]),
            Route("/submissions/{id}", ends.status),
            Route("/submissions/{id}/result", ends.result),
            Route("/health", ends.health),
        ],
        middleware=[Middleware(RequestBodyLimitMiddleware, max_body_size=BODY_MOST)],
        exception_handlers={HTTPException: _http_failure, AgentKernelError: _own_failure},
    )


def _wait_s(request: Request) -> float:
    given = request.query_params.get("wait_s", "0")
    try:
        wait_s = float(given)
    except ValueError:
        wait_s = -1.0
    if not 0 <= wait_s <= WAIT_MOST_S:
        shown = one_line(repr(given), SHOWN_INPUT)
        raise HTTPException(422, f"wait_s is {shown}. Expected seconds from 0 to {WAIT_MOST_S:g}.")
    return wait_s


def _refused(status: int, line: str, headers: Mapping[str, str] | None = None) -> JSONResponse:
    return JSONResponse({"error": line}, status, headers)


def _refused_body(error: ValidationError) -> JSONResponse:
    """400 for what is no JSON, 422 for JSON that is no submission."""
    first = error.errors(include_url=False)[0]
    expected = ", ".join(Submission.model_fields)
    if first["type"] == "json_invalid":
        line = f"The body is no JSON: {one_line(first['msg'], SHOWN_INPUT)}."
        return _refused(400, f"{line} Expected an object with {expected}.")
    if not first["loc"]:
        return _refused(422, f"The body is no object. Expected one with {expected}.")
    field = one_line(".".join(map(str, first["loc"])), SHOWN_INPUT)
    given = one_line(repr(first["input"]), SHOWN_INPUT)
    is_there = f" is {given}" if first["type"] not in ("missing", "extra_forbidden") else ""
    return _refused(422, f"Field {field!r}{is_there}: {first['msg']}. Fields: {expected}.")


async def _http_failure(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return _refused(error.status_code, error.detail, error.headers)


async def _own_failure(request: Request, error: Exception) -> Response:
    """The disk is full, or the file of the queue is damaged: the server's to fix, not the
    client's."""
    return _refused(503, one_line(error))
