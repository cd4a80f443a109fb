"""An OpenAI-compatible endpoint on loopback whose answers, good and bad, are written beforehand."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Self

PIECE = 40
"""Characters of one piece of a stream, unless an answer is long."""


@dataclass
class Says:
    """An answer. `texts` are the choices that a request for several gets."""

    text: str = ""
    texts: tuple[str, ...] = ()
    finish: str = "stop"
    tool: bool = False
    """Called as the arguments of the tool that was offered."""
    prompt: int = 100
    completion: int = 20
    cached: int = 0
    pause_s: float = 0.0
    """Between two pieces of a stream: a model that is seen to write."""


@dataclass
class Refuses:
    """An HTTP error; its text repeats the key that was sent."""

    status: int
    headers: dict[str, str] = field(default_factory=dict)
    text: str = "refused"


@dataclass
class Cuts:
    """A stream that begins with `text` and then drops the line; `clean`: without an error."""

    text: str
    clean: bool = False


@dataclass
class Stalls:
    """Says `text`, then nothing for `seconds`; `pings` keep the line open meanwhile."""

    seconds: float
    text: str = ""
    pings: bool = False


@dataclass
class Garbage:
    """A body, with 200, that is no answer."""

    body: str = "<html>welcome</html>"


Answer = str | int | Says | Refuses | Cuts | Stalls | Garbage
Scripted = Answer | Callable[[dict[str, object]], Answer]
"""An answer, or what makes one of the request."""


@dataclass
class ChatServer:
    """Gives `answers` in order, the last one again and again where `forever`; keeps requests."""

    answers: list[Scripted]
    forever: bool = False
    port: int = 0
    """0: any that is free."""
    requests: list[dict[str, object]] = field(default_factory=list)
    authorizations: list[str] = field(default_factory=list)
    times: list[float] = field(default_factory=list)
    url: str = ""
    closing: threading.Event = field(default_factory=threading.Event)

    def next_answer(self, request: dict[str, object]) -> Answer:
        last = self.forever and len(self.answers) == 1
        answer = self.answers[0] if last else self.answers.pop(0)
        if callable(answer):
            answer = answer(request)
        if isinstance(answer, str):
            return Says(answer)
        return Refuses(answer) if isinstance(answer, int) else answer

    def __enter__(self) -> Self:
        server = self

        class Handler(ChatHandler):
            script = server

        self._http = ThreadingHTTPServer(("127.0.0.1", self.port), Handler)
        self._http.daemon_threads = True
        # Its end waits for a poll: half a second by default, for each of many tests.
        serving = partial(self._http.serve_forever, poll_interval=0.01)
        self._thread = threading.Thread(target=serving, daemon=True)
        self._thread.start()
        self.url = f"http://127.0.0.1:{self._http.server_port}/v1"
        return self

    def __exit__(self, *_: object) -> None:
        self.closing.set()
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()


class ChatHandler(BaseHTTPRequestHandler):
    """One request: the whole answer, or a stream of server-sent events where it asks for one."""

    script: ChatServer
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        size = int(self.headers["Content-Length"])
        request = json.loads(self.rfile.read(size))
        self.script.requests.append(request)
        self.script.authorizations.append(self.headers.get("Authorization", ""))
        self.script.times.append(time.monotonic())
        answer = self.script.next_answer(request)
        match answer:
            case Refuses():
                said = f"{answer.text}: {self.headers.get('Authorization')}"
                body = json.dumps({"error": {"message": said, "code": answer.text}})
                self._whole(answer.status, body, answer.headers)
            case Garbage():
                self._whole(200, answer.body, {})
            case Says() if not request.get("stream"):
                self._whole(200, json.dumps(completion(answer, request)), {})
            case Says():
                self._stream(says_events(answer, request), answer.pause_s)
                self._chunk(b"data: [DONE]\n\n")
                self._chunk(b"")
            case Cuts():
                self._stream(text_events(answer.text))
                if answer.clean:
                    self._chunk(b"")
                self.close_connection = True
            case Stalls():
                self._stream(text_events(answer.text))
                self._stall(answer)

    def _whole(self, status: int, body: str, headers: dict[str, str]) -> None:
        data = body.encode()
        self.send_response(status)
        for name, value in {"Content-Type": "application/json", **headers}.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def _stream(self, events: Iterator[dict[str, object]], pause_s: float = 0.0) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for event in events:
            self._chunk(f"data: {json.dumps(event)}\n\n".encode())
            self.script.closing.wait(pause_s)

    def _chunk(self, data: bytes) -> None:
        self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
        self.wfile.flush()

    def _stall(self, answer: Stalls) -> None:
        end = time.monotonic() + answer.seconds
        try:
            while time.monotonic() < end and not self.script.closing.wait(0.05):
                if answer.pings:
                    self._chunk(b": ping\n\n")
        except OSError:
            """The client has left, as it should."""
        self.close_connection = True

    def log_message(self, *_: object) -> None:
        """Stay silent."""


def completion(answer: Says, request: dict[str, object]) -> dict[str, object]:
    """The body of one chat completion, with as many choices as the script has."""
    texts = answer.texts[: int(str(request.get("n") or 1))] or (answer.text,)
    choices = [
        {"index": index, "finish_reason": answer.finish, "message": message(answer, text)}
        for index, text in enumerate(texts)
    ]
    return head("chat.completion") | {"choices": choices, "usage": usage(answer)}


def message(answer: Says, text: str) -> dict[str, object]:
    if not answer.tool:
        return {"role": "assistant", "content": text}
    return {"role": "assistant", "content": None, "tool_calls": [tool_call(text)]}


def tool_call(arguments: str, **more: object) -> dict[str, object]:
    called = {"name": "answer", "arguments": arguments}
    return {"id": "call-1", "type": "function", "function": called, **more}


def says_events(answer: Says, request: dict[str, object]) -> Iterator[dict[str, object]]:
    """The events of a stream: pieces, the reason of its end, the tokens where they are wanted."""
    text = answer.text or (answer.texts[0] if answer.texts else "")
    if answer.tool:
        half = len(text) // 2
        yield event({"role": "assistant", "tool_calls": [tool_call(text[:half], index=0)]})
        rest = {"index": 0, "function": {"arguments": text[half:]}}
        yield event({"tool_calls": [rest]})
    else:
        yield from text_events(text)
    yield event({}, answer.finish)
    options = request.get("stream_options")
    if isinstance(options, dict) and options.get("include_usage"):
        yield head("chat.completion.chunk") | {"choices": [], "usage": usage(answer)}


def text_events(text: str) -> Iterator[dict[str, object]]:
    size = max(PIECE, len(text) // 200)
    yield event({"role": "assistant", "content": ""})
    for start in range(0, len(text), size):
        yield event({"content": text[start : start + size]})


def event(delta: dict[str, object], finish: str | None = None) -> dict[str, object]:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    return head("chat.completion.chunk") | {"choices": [choice]}


def head(kind: str) -> dict[str, object]:
    return {"id": "chatcmpl-1", "object": kind, "created": 1, "model": "scripted"}


def usage(answer: Says) -> dict[str, object]:
    return {
        "prompt_tokens": answer.prompt,
        "completion_tokens": answer.completion,
        "total_tokens": answer.prompt + answer.completion,
        "prompt_tokens_details": {"cached_tokens": answer.cached},
    }
