"""The endpoints: who is answered, what is refused with which line, and the judge's own verdicts."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.serving.servers import HEADERS, QUICK, TOKEN, Server, serving, submission


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with serving(tmp_path_factory.mktemp("served"), "--workers", "1") as found:
        yield found


def test_the_verdict_is_what_judge_prints(server: Server, tmp_path: Path) -> None:
    asked = submission(1) | {"name": "twice", "policy": "triton"}
    module, candidate = tmp_path / "twice.py", tmp_path / "candidate.py"
    module.write_text(str(asked["problem"]))
    candidate.write_text(str(asked["candidate"]))
    words = ["judge", str(module), "--candidate", str(candidate), "--seed", "1", "--json"]
    done = subprocess.run(
        [sys.executable, "-m", "agentkernel", *words, "--policy", "triton", *QUICK],
        capture_output=True,
        text=True,
        check=False,
    )
    result = server.result(server.submit(asked))
    printed = json.loads(done.stdout)
    assert result["verdict"] | {"seconds": 0} == printed | {"seconds": 0}
    assert (result["verdict"]["accepted"], result["profile"], result["error"]) == (True, None, "")


@pytest.mark.slow
def test_wrong_files_are_rejected_and_equal_ones_judged_once(server: Server) -> None:
    asked = submission(2, factor=2.5)
    first = server.ask("POST", "/submissions", asked)
    assert (first.status, first.json["state"]) == (202, "queued")
    assert first.headers["location"] == f"/submissions/{first.json['id']}"
    result = server.result(first.json["id"])
    assert result["verdict"]["gate"] == "correctness"
    done = server.ask("GET", "/health").json["done"]
    again = server.ask("POST", "/submissions", asked)
    assert (again.status, again.json["id"], again.json["state"]) == (200, result["id"], "done")
    assert server.result(result["id"]) == result
    assert server.ask("GET", "/health").json["done"] == done
    assert server.submit(asked | {"policy": "any"}) != result["id"]


def test_a_profile_is_absent_without_a_gpu(server: Server) -> None:
    if server.ask("GET", "/health").json["place"] != "the CPU, interpreted":
        pytest.skip("a GPU is here")
    result = server.result(server.submit(submission(3) | {"profile": True}))
    assert result["verdict"]["accepted"]
    assert result["profile"] is None
    assert "no GPU here" in result["not_profiled"]


def test_a_problem_that_cannot_be_loaded_has_an_error_for_an_answer(server: Server) -> None:
    asked = submission(4, prelude="import nothing_such")
    result = server.result(server.submit(asked))
    assert result["verdict"] is None
    assert "No module named 'nothing_such'" in result["error"]
    assert result["attempts"] == 0


def test_health(server: Server) -> None:
    said = server.ask("GET", "/health")
    assert said.status == 200
    assert said.json.items() >= {"status": "ok", "workers": 1, "most_queued": 1000}.items()


@pytest.mark.parametrize(
    ("changed", "status"),
    [
        ({"Authorization": ""}, 401),
        ({"Authorization": "Bearer"}, 401),
        ({"Authorization": f"Bearer {TOKEN}x"}, 401),
        ({"Authorization": TOKEN}, 401),
        ({"Origin": "http://evil.example"}, 403),
        ({"Host": "evil.example"}, 421),
        ({"Content-Type": "text/plain"}, 400),
    ],
)
def test_others_are_refused(server: Server, changed: dict[str, str], status: int) -> None:
    assert server.ask("POST", "/submissions", {}, HEADERS | changed).status == status
    if status != 400:
        assert server.ask("GET", "/health", None, HEADERS | changed).status == status
        assert server.ask("GET", "/x", None, HEADERS | changed).status == status


@pytest.mark.parametrize(
    ("body", "status", "line"),
    [
        (b"{", 400, "no JSON"),
        (b'{"problem": "\xff"}', 400, "no JSON"),
        (b"[" * 100_000, 400, "no JSON"),
        ([], 422, "no object"),
        ({}, 422, "'problem': Field required"),
        (submission() | {"problem": 3}, 422, "'problem' is 3"),
        (submission() | {"candidate": ""}, 422, "'candidate' is ''"),
        (submission() | {"candidate": "x" * 200_001}, 422, "'candidate'"),
        (submission() | {"name": "../x"}, 422, "'name' is '../x'"),
        (submission() | {"policy": "cuda"}, 422, "'triton', 'mixed' or 'any'"),
        (submission() | {"seed": -1}, 422, "'seed' is -1"),
        (submission() | {"target": "h1000"}, 422, "Did you mean 'h100'?"),
        (submission() | {"a\nb": 1}, 422, "'a b'"),
        (b"x" * 2_000_000, 413, "too large"),
    ],
)
def test_bad_input_is_one_line(server: Server, body: object, status: int, line: str) -> None:
    said = server.ask("POST", "/submissions", body)
    text = said.body.decode()
    assert said.status == status, text
    assert line in (said.json["error"] if status != 413 else text)
    assert len(text) < 500
    assert "\\n" not in text


def test_what_is_not_there(server: Server) -> None:
    assert server.ask("GET", "/").status == 404
    assert "No such submission" in server.ask("GET", "/submissions/x").json["error"]
    assert server.ask("GET", "/submissions/x/result").status == 404
    assert server.ask("GET", "/submissions/..%2f..%2ftoken").status == 404
    assert server.ask("DELETE", "/submissions").status == 405
    name = server.submit(submission(1))
    for wait_s in ("x", "nan", "-1", "61"):
        said = server.ask("GET", f"/submissions/{name}/result?wait_s={wait_s}")
        assert (said.status, said.json["error"][:6]) == (422, "wait_s")


def test_a_token_is_made_and_kept_in_a_file_of_ones_own(tmp_path: Path) -> None:
    path = tmp_path / "token"
    for _ in range(2):
        with serving(tmp_path, token=None) as server:
            token = path.read_text().strip()
            assert str(path) in server.said[1]
            assert token not in "".join(server.said)
            headers = {"Authorization": f"Bearer {token}"}
            assert server.ask("GET", "/health", None, headers).status == 200
            assert server.ask("GET", "/health").status == 401
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert len(token) > 30


def mistaken(tmp_path: Path, words: list[str], **variables: str) -> tuple[int, str]:
    command = [sys.executable, "-m", "agentkernel", "serve", "--state", str(tmp_path / "state")]
    done = subprocess.run(
        [*command, "--port", "0", *words],
        env=os.environ | variables,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1
    return done.returncode, done.stderr


def test_mistakes_are_one_line(tmp_path: Path) -> None:
    short, shared = tmp_path / "short", tmp_path / "shared"
    short.write_text("short")
    short.chmod(0o600)
    shared.write_text("x" * 40)
    shared.chmod(0o644)
    for words, variables, code, said in (
        (["--port", "70000"], {}, 2, "65535"),
        (["--queue", "0"], {}, 2, "--queue"),
        (["--target", "h1000"], {}, 2, "h100"),
        (["--token-file", str(short)], {}, 2, "too short"),
        (["--token-file", str(shared)], {}, 2, "mode 600"),
        (["--token-file", str(tmp_path)], {}, 2, "cannot be read"),
        ([], {"AGENTKERNEL_SERVE_TOKEN": "short"}, 2, "too short"),
        (["--host", "203.0.113.1"], {}, 4, "Cannot listen on 203.0.113.1:0"),
        (["--state", str(short)], {}, 2, str(short)),
    ):
        found = mistaken(tmp_path, words, **variables)
        assert found[0] == code, found
        assert said in found[1]


def test_one_server_a_folder(tmp_path: Path) -> None:
    with serving(tmp_path / "state"):
        code, line = mistaken(tmp_path, [])
    assert code == 4
    assert "Another server uses" in line


def test_the_client_of_the_page_works(server: Server, tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs" / "serve.md").read_text(encoding="utf-8")
    code = page.split("```python\n")[1].split("```")[0]
    assert len([line for line in code.splitlines() if line]) <= 15
    asked = submission(1)
    (tmp_path / "token").write_text(f"{TOKEN}\n")
    for name in ("problem", "candidate"):
        (tmp_path / f"{name}.py").write_text(str(asked[name]))
    code = code.replace(":8791", f":{server.port}")
    code = code.replace("~/.local/share/agentkernel/serve/token", "token")
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.stdout == "(True, 'accepted')\n", done.stderr


def test_no_worker_inherits_the_token(server: Server) -> None:
    prelude = "import os\nassert 'AGENTKERNEL_SERVE_TOKEN' not in os.environ"
    result = server.result(server.submit(submission(5, prelude=prelude)))
    assert (result["error"], result["verdict"]["accepted"]) == ("", True)
