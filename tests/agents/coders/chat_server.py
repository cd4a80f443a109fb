"""An OpenAI-compatible endpoint on loopback whose answers are written beforehand."""

from __future__ import annotations

import json
import threading
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Self


@dataclass
class ChatServer:
    """Gives `answers` in order (a str is a completion, an int an HTTP error) and keeps requests."""

    answers: list[str | int]
    requests: list[dict[str, object]] = field(default_factory=list)
    authorizations: list[str] = field(default_factory=list)
    url: str = ""

    def __enter__(self) -> Self:
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                size = int(self.headers["Content-Length"])
                server.requests.append(json.loads(self.rfile.read(size)))
                server.authorizations.append(self.headers.get("Authorization", ""))
                answer = server.answers.pop(0)
                status, body = (
                    (answer, {"error": {"message": f"refused {self.headers['Authorization']}"}})
                    if isinstance(answer, int)
                    else (200, completion(answer))
                )
                data = json.dumps(body).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *_: object) -> None:
                """Stay silent."""

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._http.serve_forever, daemon=True)
        self._thread.start()
        self.url = f"http://127.0.0.1:{self._http.server_port}/v1"
        return self

    def __exit__(self, *_: object) -> None:
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()


def completion(text: str) -> dict[str, object]:
    """The body of one chat completion."""
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1,
        "model": "scripted",
        "choices": [
            {
                "index": 0,
                "finish_reason": "stop",
                "message": {"role": "assistant", "content": text},
            }
        ],
        "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2},
    }
