"""Does a session leave alone what it did not write?"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from agentkernel.chat.replies import FilesWritten, Reply, TextReply
from agentkernel.chat.requests import OnCandidate, WriteTo
from agentkernel.chat.session import Session
from agentkernel.domain.errors import ProblemError
from tests.chat import scripted_session
from tests.chat.scripted_session import settings_for
from tests.workflows import fakes


def refused(reply: Reply) -> str:
    assert isinstance(reply, TextReply), reply
    assert not reply.ok
    return reply.text


def export(session: Session, folder: Path) -> Reply:
    return session.do(WriteTo(name="export", path=str(folder)))


def test_keep_spares_a_file_of_the_same_name(ran: Session, tmp_path: Path) -> None:
    mine = tmp_path / "plus_optimized.py"
    mine.write_text("print('mine')\n")
    assert "no drop-in as it was written" in refused(ran.do(OnCandidate(name="keep")))
    assert mine.read_text() == "print('mine')\n"
    assert ran.tree.kept is None


def test_keep_spares_a_drop_in_that_was_changed_by_hand(ran: Session, tmp_path: Path) -> None:
    assert isinstance(ran.say("keep c1")[0], FilesWritten)
    kept = tmp_path / "plus_optimized.py"
    changed = kept.read_text() + "# tuned by hand\n"
    kept.write_text(changed)
    refused(ran.say("keep c3")[0])
    assert kept.read_text() == changed


def test_keep_replaces_an_earlier_drop_in(ran: Session, tmp_path: Path) -> None:
    kept = tmp_path / "plus_optimized.py"
    for name, node in (("c1", ran.tree.nodes[0]), ("c3", ran.tree.nodes[2])):
        assert isinstance(ran.say(f"keep {name}")[0], FilesWritten)
        assert kept.read_text() == node.candidate.source


def test_a_drop_in_of_another_session_is_known_by_its_certificate(
    ran: Session, tmp_path: Path
) -> None:
    assert isinstance(ran.say("keep c1")[0], FilesWritten)
    ran._work.tree = ran.tree.evolve(nodes=ran.tree.nodes[1:])
    assert isinstance(ran.say("keep c3")[0], FilesWritten)


def test_export_beside_the_module_spares_what_was_changed_since(
    ran: Session, tmp_path: Path
) -> None:
    module = tmp_path / "plus.py"
    module.write_text(fakes.PROBLEM + "# since then\n")
    assert "not this session's" in refused(export(ran, tmp_path))
    assert module.read_text() == fakes.PROBLEM + "# since then\n"
    assert not (tmp_path / "session.md").exists(), "nothing is written where something is refused"


def test_export_spares_files_that_no_export_wrote(ran: Session, tmp_path: Path) -> None:
    for name in ("session.md", "session.txt", "plus_optimized.py"):
        folder = tmp_path / name.replace(".", "-")
        folder.mkdir()
        (folder / name).write_text("mine\n")
        refused(export(ran, folder))
        assert [item.name for item in folder.iterdir()] == [name]
        assert (folder / name).read_text() == "mine\n"


def test_export_again_tells_what_came_since(ran: Session, tmp_path: Path) -> None:
    folder = tmp_path / "out"
    assert isinstance(export(ran, folder), FilesWritten)
    ran.say("allow tf32")
    assert isinstance(export(ran, folder), FilesWritten)
    assert "## allow tf32" in (folder / "session.md").read_text()


def test_export_of_a_copied_session_is_whole_without_its_runs(ran: Session, tmp_path: Path) -> None:
    shutil.rmtree(tmp_path / "runs" / str(ran.tree.steps[0].run))
    told = export(ran, tmp_path / "out")
    assert isinstance(told, FilesWritten)
    assert "without a drop-in" in told.text
    assert "c1 has no certificate here: No run" in told.text
    assert not (tmp_path / "out/plus_optimized.py").exists()


def test_a_name_too_long_is_told_once(ran: Session) -> None:
    told = refused(ran.do(WriteTo(name="save", path="a" * 300 + ".py")))
    assert "File name too long" in told
    assert len(told) < 200


@pytest.mark.parametrize("place", ["module", "runs"])
def test_a_path_that_no_record_can_hold_is_refused_at_once(
    place: str, tmp_path: Path, shop: scripted_session.SessionShop
) -> None:
    strange = Path(os.fsdecode(os.fsencode(tmp_path) + b"/d\xff"))
    strange.mkdir()
    problem = fakes.small_problem(strange if place == "module" else tmp_path)
    runs = strange if place == "runs" else tmp_path / "runs"
    settings = settings_for(tmp_path)({}).evolve(runs=str(runs))
    with pytest.raises(ProblemError, match=r"d\\udcff.* is no UTF-8"):
        Session.begin(problem, lambda changes: settings, workshop=shop)
    assert not list(tmp_path.rglob("session.sqlite"))
