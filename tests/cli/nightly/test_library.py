"""Do the library's commands say what there is, and end in 0, 2, 4 or 6 where they should?"""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path

import pytest

from agentkernel.cli.app import run
from agentkernel.cli.nightly.library import exit_code
from agentkernel.nightly.library import Library, default_library
from agentkernel.nightly.library.maintenance import VerifiedKernel
from agentkernel.runtime.machine import installed_versions
from tests.cli.commands import Cli
from tests.nightly.library.library_rows import days_ago, kernel, key, night


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two kernels of one signature, of which the older one was withdrawn, and one of another."""
    monkeypatch.setenv("AGENTKERNEL_HOME", str(tmp_path / "home"))
    place = tmp_path / "library.sqlite"
    with Library(place) as library:
        old = kernel(source="old\n", created=days_ago(9))
        library.put(old)
        library.withdraw(old.sha256, "wrong at 3 x 5")
        library.put(kernel(source="new\n", signed=True))
        library.put(kernel(1, source="other\n", speedup=None, signed=True))
        library.save_night(night())
    return place


def sha(source: str) -> str:
    return kernel(source=source).sha256


def asked(cli: Cli, code: int, *words: str) -> str:
    said = cli(["library", *words], code)
    return said.err if code == 2 else said.out


def test_list(path: Path, cli: Cli) -> None:
    shown = asked(cli, 0, "list", "--library", str(path))
    assert all(sha(name)[:10] in shown for name in ("old\n", "new\n", "other\n"))
    assert "withdrawn: wrong" in shown
    assert "2.00x" in shown
    assert "not measured" in shown
    found = json.loads(asked(cli, 0, "list", "--valid", "--json", "--library", str(path)))
    assert [item["sha256"] for item in found] == [sha("new\n"), sha("other\n")]
    assert found[0]["key"] == key().model_dump()


def test_the_users_own_library_is_the_default(path: Path, cli: Cli) -> None:
    assert asked(cli, 2, "list").startswith("agentkernel: No library of kernels in")
    assert not default_library().exists()
    default_library().parent.mkdir(parents=True, exist_ok=True)
    with Library(default_library()):
        pass
    assert asked(cli, 0, "list").startswith("No kernels in")


def test_show(path: Path, cli: Cli) -> None:
    where = ("--library", str(path))
    shown = asked(cli, 0, "show", sha("old\n")[:6].upper(), *where)
    assert f"kernel {sha('old' + chr(10))}" in shown
    assert "withdrawn: wrong at 3 x 5" in shown
    assert "for NVIDIA H200: 10 us" not in shown
    assert "on NVIDIA H200: 10 us, 2.00x" in shown
    estimated = asked(cli, 0, "show", sha("other\n"), *where)
    assert "\nestimated " in estimated
    assert "for NVIDIA H200: 10 us\n" in estimated
    assert "measured 2" not in estimated
    assert shown.endswith("old\n\n")
    found = json.loads(asked(cli, 0, "show", sha("new\n"), "--json", *where))
    assert found["kernels"][0]["certificate"]["candidate_sha256"] == sha("new\n")
    assert found["measurements"][0]["time_us"] == 10.0
    assert found["measurements"][0]["basis"] == "measured"


def test_what_does_not_fit_the_certificate_is_told(path: Path, cli: Cli) -> None:
    where = ("--library", str(path))
    connection = sqlite3.connect(path)
    with connection:
        connection.execute(
            "update kernels set speedup = 9.9, gpu = 'NVIDIA B200' where sha256 = ?",
            (sha("new\n"),),
        )
        connection.execute(
            "update kernels set source = source || '#' where sha256 = ?", (sha("other\n"),)
        )
    connection.close()
    found = json.loads(asked(cli, 0, "list", "--json", *where))
    assert [item["unfit"] for item in found] == [
        None,
        "gpu, speedup not as in its certificate",
        "its source is of another text",
    ]
    assert json.loads(asked(cli, 0, "list", "--valid", "--json", *where)) == []
    assert "not given out: gpu, speedup" in asked(cli, 0, "show", sha("new\n"), *where)
    assert "2 withdrawn" in asked(cli, 6, "verify", "--all", *where)


@pytest.mark.parametrize("words", [("list",), ("list", "--json"), ("verify", "--all")])
def test_a_damaged_file_of_which_nothing_could_be_read_ends_in_4(
    words: tuple[str, ...], path: Path, cli: Cli
) -> None:
    path.write_bytes(b"\xa5" * path.stat().st_size)
    for side in ("-wal", "-shm"):
        path.with_name(f"{path.name}{side}").unlink(missing_ok=True)
    said = " ".join(cli(["library", *words, "--library", str(path)], 4).err.split())
    assert "The library was damaged" in said
    assert "nothing was saved into a new one" in said
    assert run(["library", *words, "--library", str(path)]) == 0


@pytest.mark.parametrize("name", ["abc", "zzzzzz", "00000000", "' or 1"])
def test_an_unknown_kernel_is_one_line(name: str, path: Path, cli: Cli) -> None:
    said = asked(cli, 2, "show", name, "--library", str(path))
    assert said.count("\n") == 1
    assert "is unknown" in said


def test_digits_of_two_kernels_are_one_line(path: Path, cli: Cli) -> None:
    with Library(path) as library:
        number, first = next(
            (number, found[0])
            for number in range(10**6)
            if (found := [s for s in _known(library) if s[:4] == _sha_of(number)[:4]])
        )
        library.put(kernel(number))
    assert "stands for 2 kernels" in asked(cli, 2, "show", first[:4], "--library", str(path))


def _known(library: Library) -> list[str]:
    return [item.sha256 for item in library.lines()]


def _sha_of(number: int) -> str:
    from agentkernel.domain.base import sha256_text

    return sha256_text(f"class ModelNew: ...  # {number}\n")


def test_verify_needs_a_kernel_or_all(path: Path, cli: Cli) -> None:
    where = ("--library", str(path))
    assert "Expected one of the two" in asked(cli, 2, "verify", *where)
    assert "Expected one of the two" in asked(cli, 2, "verify", "abcd", "--all", *where)


def test_verify_withdraws_and_ends_in_6(path: Path, cli: Cli) -> None:
    where = ("--library", str(path))
    here = installed_versions()
    broken = kernel(
        5,
        source="class ModelNew: ...\n",
        at=key(5).evolve(torch=here.torch, triton=here.triton),
        signed=True,
    )
    assert "2 skipped" in asked(cli, 0, "verify", "--all", *where)
    with Library(path) as library:
        library.put(broken)
    shown = asked(cli, 6, "verify", "--all", *where)
    assert f"{broken.sha256[:10]} plus on NVIDIA H200: withdrawn: verdict: accepted then" in shown
    assert "2 skipped, 1 withdrawn" in shown
    assert "1 withdrawn" not in asked(cli, 0, "verify", "--all", *where)
    found = json.loads(asked(cli, 6, "verify", broken.sha256, "--json", *where))
    assert found["exit_code"] == 6
    assert found["kernels"][0]["state"] == "withdrawn"


def test_what_is_withdrawn_outweighs_what_cannot_be_judged(path: Path) -> None:
    with Library(path) as library:
        line = library.lines()[0]
    states = [VerifiedKernel(line, "holds"), VerifiedKernel(line, "skipped")]
    assert exit_code(states) == 0
    states.append(VerifiedKernel(line, "undecided", "too slow"))
    assert exit_code(states) == 4
    assert exit_code([*states, VerifiedKernel(line, "withdrawn")]) == 6


def test_export(path: Path, tmp_path: Path, cli: Cli) -> None:
    out = tmp_path / "out"
    shown = asked(cli, 0, "export", str(out), "--library", str(path))
    assert shown == f"2 kernels in {str(out)!r}; 1 that may not be used left out\n"
    assert len(json.loads((out / "index.json").read_text())["kernels"]) == 2
    found = json.loads(asked(cli, 0, "export", str(out), "--json", "--library", str(path)))
    assert found == {"folder": str(out), "kernels": 2, "left_out": 1}


def test_prune_shows_and_then_drops(path: Path, cli: Cli) -> None:
    where = ("--library", str(path))
    assert "was not told what to drop" in asked(cli, 2, "prune", *where)
    assert "was not told what to drop" in asked(cli, 2, "prune", "--all", "--yes", *where)
    shown = asked(cli, 0, "prune", "--withdrawn", "--older-than", "0", *where)
    assert f"{sha('old' + chr(10))[:10]} plus on NVIDIA H200: withdrawn: wrong" in shown
    assert "1 kernels, 0 nights and 0 jobs would be dropped" in shown
    assert "2 stay: the newest valid" in shown
    assert "Next: the same with --yes" in shown
    found = json.loads(asked(cli, 0, "prune", "--withdrawn", "--yes", "--json", *where))
    assert (found["dropped"], len(found["kernels"])) == (True, 1)
    left = json.loads(asked(cli, 0, "list", "--json", *where))
    assert [item["sha256"] for item in left] == [sha("new\n"), sha("other\n")]
    asked(cli, 0, "prune", "--keep-gpu", "NVIDIA H100", "--all", "--yes", *where)
    assert json.loads(asked(cli, 0, "list", "--json", *where)) == []


def test_a_file_that_is_no_library_is_one_line(tmp_path: Path, cli: Cli) -> None:
    text = tmp_path / "notes.txt"
    text.write_text("mine")
    said = asked(cli, 2, "list", "--library", str(text))
    assert said.count("\n") == 1
    assert "is no library of kernels" in said
    assert text.read_text() == "mine"


def test_the_newest_of_many_kernels_are_listed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cli: Cli
) -> None:
    monkeypatch.setattr("agentkernel.cli.nightly.library.MOST_LISTED", 2)
    path = tmp_path / "library.sqlite"
    with Library(path) as library:
        for number in range(3):
            library.put(kernel(number, created=days_ago(9 - number)))
            library.put(kernel(at=key(number + 5), created=days_ago(9 - number)))
    lines = cli(["library", "list", "--library", str(path)]).out.splitlines()
    assert lines[0] == "The newest 2 of 6 kernels; --limit shows more."
    assert len(lines) == 4
    where = ("--library", str(path))
    assert len(asked(cli, 0, "list", "--limit", "9", *where).splitlines()) == 7
    assert asked(cli, 0, "show", kernel().sha256, *where).startswith("The newest 2 of 4 keys")
