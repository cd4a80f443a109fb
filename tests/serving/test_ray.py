"""Do the workers of a Ray cluster judge what is queued? Needs the extra `ray`."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from tests.serving.servers import noting, serving, submission

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not importlib.util.find_spec("ray"), reason="the extra 'ray' is not here"),
]


def test_a_cluster_judges_and_a_lost_task_is_begun_again(tmp_path: Path) -> None:
    marks, fatal = tmp_path / "marks", tmp_path / "fatal"
    with serving(tmp_path / "state", "--ray", "local", "--workers", "2") as server:
        right = server.submit(submission(0))
        wrong = server.submit(submission(1, factor=2.5))
        again = server.submit(submission(2, prelude=noting(marks, "if n == 1:\n    os._exit(7)")))
        never = server.submit(submission(3, prelude=noting(fatal, "os._exit(7)")))
        assert server.result(right)["verdict"]["accepted"]
        assert server.result(wrong)["verdict"]["gate"] == "correctness"
        result = server.result(again)
        assert (result["verdict"]["accepted"], result["attempts"]) == (True, 1)
        assert server.result(never)["error"].startswith("not judged in 3 tries: its worker")
        assert "4 finished, 0 waiting" in server.end()
    assert (marks.read_text(), fatal.read_text()) == ("xx", "xxx")
