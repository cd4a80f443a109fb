"""Does a run begin with what it was given, and again with the same after that is gone?"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from given_shop import RIGHT, SLOW, WRONG, GivenShop

from agentkernel.domain.candidate import Candidate
from agentkernel.errors import SettingError
from agentkernel.tools.certificate import read_certificate
from agentkernel.workflows.events import Event
from agentkernel.workflows.optimize import resume, run
from agentkernel.workflows.state import OptimizeRequest
from fakes import settings, small_problem


def given(folder: Path, text: str) -> OptimizeRequest:
    """A request with that text as the coder."""
    path = folder / "kernel.py"
    path.write_text(text)
    chosen = settings(folder / "runs", f"coder=file:{path}")
    return OptimizeRequest(small_problem(folder), chosen)


def test_a_given_file_is_judged_measured_and_handed_over(tmp_path: Path) -> None:
    seen: list[Event] = []
    shop = GivenShop()
    result = run(given(tmp_path, RIGHT), seen.append, workshop=shop)
    assert (result.status, result.drafts, len(shop.judged)) == ("met", 1, 1)
    assert Path(result.candidate or "").read_text() == RIGHT
    certificate = read_certificate(Path(result.certificate or ""))
    assert certificate.candidate_source == RIGHT
    drafted = [item for item in seen if item.kind == "candidate_drafted"]
    assert [(item.coder, item.strategy) for item in drafted] == [("file:kernel.py", "given")]


@pytest.mark.parametrize(
    ("text", "status"), [(WRONG, "kept_original"), (SLOW, "kept_original")], ids=["wrong", "slow"]
)
def test_a_given_file_that_is_no_better_is_tried_once(
    tmp_path: Path, text: str, status: str
) -> None:
    seen: list[Event] = []
    result = run(given(tmp_path, text), seen.append, workshop=GivenShop())
    assert (result.status, result.candidate, result.exit_code) == (status, None, 3)
    assert [item.kind for item in seen].count("candidate_drafted") == 1


def test_a_run_goes_on_after_its_given_file_is_gone(tmp_path: Path) -> None:
    def stop(candidate: Candidate) -> None:
        raise KeyboardInterrupt

    cut = run(given(tmp_path, RIGHT), workshop=GivenShop(on_judge=stop))
    assert cut.interrupted
    (tmp_path / "kernel.py").unlink()
    end = resume("last", runs=tmp_path / "runs", workshop=GivenShop())
    assert end.status == "met"
    assert Path(end.candidate or "").read_text() == RIGHT


def test_a_file_that_is_not_there_makes_no_run(tmp_path: Path) -> None:
    request = given(tmp_path, RIGHT)
    (tmp_path / "kernel.py").unlink()
    with pytest.raises(SettingError, match=r"kernel\.py"):
        run(request, workshop=GivenShop())
    assert not (tmp_path / "runs").exists()
