"""The library gives out what was put, and nothing that was withdrawn or does not belong."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from agentkernel.domain.problem import DataStructure
from agentkernel.nightly.library import Library
from agentkernel.nightly.library.rows import (
    OTHER_CERTIFICATE,
    OTHER_FIGURES,
    OTHER_SIGNATURE,
    OTHER_SOURCE,
)
from tests.nightly.library.library_rows import H200, days_ago, kernel, key, model, night, region

EDITED = OTHER_SIGNATURE


@pytest.fixture
def library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Library]:
    monkeypatch.setenv("AGENTKERNEL_HOME", str(tmp_path / "home"))
    with Library(tmp_path / "library.sqlite", pytest.fail) as opened:
        yield opened


def edit(library: Library, statement: str, *values: object) -> None:
    with sqlite3.connect(library.path) as connection:
        assert connection.execute(statement, values).rowcount > 0
    connection.close()


def test_what_was_put_is_found_by_its_whole_key(library: Library) -> None:
    put = kernel(1, signed=True)
    library.put(put)
    assert library.find(put.key) == put
    for other in (
        key(2),
        key(1, gpu="NVIDIA H100"),
        key(1, torch="2.14.0"),
        key(1).evolve(triton="3.10.0"),
        key(1).evolve(precision="tf32"),
        key(1).evolve(dtype="bfloat16"),
    ):
        assert library.find(other) is None


def test_how_arguments_and_outputs_are_nested_comes_back(library: Library) -> None:
    tensor = DataStructure("tensor")
    pair = DataStructure("tuple", items=(tensor, DataStructure("literal", "None")))
    call = DataStructure(
        "tuple", items=(pair, DataStructure("dict", keys=("'mask'",), items=(tensor,)))
    )
    for number, update in enumerate(
        [{"arguments": call}, {"returns": pair}, {"arguments": call, "returns": pair}]
    ):
        put = kernel(number).evolve(**update)
        library.put(put)
        assert library.find(put.key) == put


def test_finding_uses_the_index(library: Library) -> None:
    from agentkernel.nightly.library.rows import BY_KEY, FULL_QUERY, key_values

    connection = sqlite3.connect(library.path)
    plan = connection.execute(
        f"explain query plan {FULL_QUERY} where {BY_KEY} and k.withdrawn is null "
        "order by k.created desc, k.id desc",
        key_values(key()),
    ).fetchall()
    connection.close()
    assert "kernels_by_key" in plan[0][3]
    assert not any("SCAN" in row[3] or "TEMP B-TREE" in row[3] for row in plan)


def test_the_newest_is_found_and_the_one_before_where_it_is_withdrawn(library: Library) -> None:
    old = kernel(source="old\n", created=days_ago(9))
    new = kernel(source="new\n", created=days_ago(2))
    library.put(new)
    library.put(old)
    assert library.find(key()) == new
    assert library.withdraw(new.sha256, "wrong at 3 x 5") == 1
    assert library.withdraw(new.sha256, "another reason") == 0
    assert library.has(key())
    assert library.find(key()) == old
    assert [item.withdrawn for item in library.kernels()] == [None, "wrong at 3 x 5"]
    assert library.kernels(withdrawn=False) == (old,)


def test_one_key_alone_is_withdrawn_or_verified(library: Library) -> None:
    other = key(gpu="NVIDIA H100")
    library.put(kernel())
    library.put(kernel(at=other))
    sha256 = kernel().sha256
    assert library.verified(sha256, "2026-11-23T00:00:00+00:00", key=other) == 1
    assert library.withdraw(sha256, "slower", key=key()) == 1
    assert library.find(key()) is None
    found = library.find(other)
    assert found is not None
    assert found.verified == "2026-11-23T00:00:00+00:00"
    assert library.withdraw(sha256, "wrong") == 1
    assert library.find(other) is None


def test_only_a_later_certificate_brings_back_what_was_withdrawn(library: Library) -> None:
    put = kernel(created=days_ago(3))
    library.put(put)
    library.withdraw(put.sha256, "wrong")
    library.put(put)
    library.put(kernel(created=days_ago(4)))
    assert library.find(put.key) is None
    again = kernel(created=days_ago(1))
    library.put(again)
    assert library.find(put.key) == again
    assert len(library.lines()) == 1


def test_an_older_certificate_takes_no_newer_ones_place(library: Library) -> None:
    newer = kernel(created=days_ago(1), speedup=3.0)
    library.put(newer)
    library.put(kernel(created=days_ago(5), speedup=1.5))
    assert library.find(key()) == newer
    assert [item.speedup for item in library.measurements(newer.sha256)] == [1.5, 3.0]


@pytest.mark.parametrize(
    ("column", "value", "reason"),
    [
        ("judge_sha256", "0" * 64, OTHER_CERTIFICATE),
        ("signer", "0" * 64, OTHER_CERTIFICATE),
        ("source", "class ModelNew: import os\n", OTHER_SOURCE),
        ("sha256", "0" * 64, OTHER_SOURCE),
    ],
)
def test_what_does_not_belong_together_is_never_given_out(
    column: str, value: str, reason: str, library: Library
) -> None:
    library.put(kernel(signed=True))
    edit(library, f"update kernels set {column} = ?", value)
    assert library.find(key()) is None
    assert [item.withdrawn for item in library.kernels()] == [reason]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ("kernels set speedup = 9.9, basis = 'estimated'", f"basis, speedup {OTHER_FIGURES}"),
        ('certificates set value = replace(value, \'"reason": ""\', \'"reason": "x"\')', EDITED),
        ('certificates set value = \'{"reason": "x",\' || substr(value, 2)', EDITED),
    ],
)
def test_a_row_that_does_not_fit_what_was_signed_is_told_and_never_given_out(
    change: str, reason: str, library: Library
) -> None:
    put = kernel(signed=True)
    library.put(put)
    library.put(kernel(1))
    edit(library, f"update {change} where sha256 in (?, ?)", *_names(library, kernel().sha256))
    assert library.find(key()) is None
    wrong, whole = sorted(library.checked_lines(), key=lambda item: item.unfit is None)
    assert (wrong.sha256, wrong.unfit, wrong.signed) == (kernel().sha256, reason, True)
    assert (whole.unfit, whole.signed, whole.withdrawn) == (None, False, None)
    library.put(put)
    assert library.find(key()) == put


def _names(library: Library, sha256: str) -> tuple[str, str]:
    (line,) = library.lines(sha256=sha256)
    return line.sha256, line.certificate


def test_a_certificate_of_another_candidate_is_never_given_out(library: Library) -> None:
    older = kernel(source="older\n", created=days_ago(9))
    library.put(older)
    library.put(kernel(1))
    library.put(kernel())
    edit(
        library,
        "update kernels set certificate = (select certificate from kernels where signature = ?) "
        "where sha256 = ?",
        key(1).signature,
        kernel().sha256,
    )
    assert library.find(key()) == older
    assert library.kernels(sha256=kernel().sha256)[0].withdrawn == OTHER_CERTIFICATE


def test_a_certificate_that_cannot_be_read_is_listed_and_not_given_out(library: Library) -> None:
    library.put(kernel())
    edit(library, "update certificates set value = '{}'")
    assert library.find(key()) is None
    assert library.kernels() == ()
    assert [item.sha256 for item in library.lines()] == [kernel().sha256]
    assert library.stored(library.lines()[0]) is None


def test_a_measurement_is_kept_with_its_night(library: Library) -> None:
    library.put(kernel(), night="n1")
    (found,) = library.measurements(kernel().sha256)
    assert (found.night, found.gpu, found.time_us, found.speedup) == ("n1", H200, 10.0, 2.0)
    assert found.basis == "measured"


def test_an_estimate_is_no_measurement(library: Library) -> None:
    library.put(kernel(speedup=None))
    assert [item.basis for item in library.measurements(kernel().sha256)] == ["estimated"]


def test_the_live_module_outlives_its_run(library: Library, tmp_path: Path) -> None:
    live = tmp_path / "live.pkl"
    live.write_bytes(b"module")
    library.put(kernel(), live=live)
    library.put(kernel(), live=live)
    live.unlink()
    kept = library.live_pickle(library.lines()[0])
    assert kept is not None
    assert kept.read_bytes() == b"module"
    library.put(kernel(1), live=live)
    assert library.live_pickle(library.lines(sha256=kernel(1).sha256)[0]) is None


def test_nights_come_back_whole_and_oldest_first(library: Library) -> None:
    second = night("n2", started="2026-11-21T02:00:00+00:00", models=(model(), model("gpt2")))
    first = night("n1", regions=(region(1), region(0, "reused")))
    library.save_night(second)
    library.save_night(first)
    library.save_night(night("other", zoo="transformers"))
    assert library.nights("tiny") == (first, second)
    assert len(library.nights()) == 3
    assert library.night("n1") == first
    assert library.night("n9") is None


def test_a_history_has_the_regions_whose_kernel_changed(library: Library) -> None:
    kept, new, lost = region(0, "kept"), region(1), region(2, "withdrawn")
    library.save_night(night("n1", regions=(kept, new, lost, region(3, "reused"))))
    library.save_night(night("other", zoo="transformers"))
    (found,) = library.history("tiny")
    assert found.regions == (new, lost)
    assert found.models == night("n1").models


def test_a_night_that_is_saved_again_replaces_itself(library: Library) -> None:
    library.save_night(night(finished=None, regions=(region(0), region(1))))
    done = night(regions=(region(2),), models=(model(),))
    library.save_night(done)
    assert library.nights("tiny") == (done,)


def test_the_last_night_is_one_that_finished_and_the_green_one_had_no_failure(
    library: Library,
) -> None:
    nights = [
        night("green"),
        night("failed", started="2026-11-21", models=(model(error="no memory"),)),
        night("withdrew", started="2026-11-22", regions=(region(status="withdrawn"),)),
        night("slower", started="2026-11-23"),
        night("killed", started="2026-11-24", finished=None),
        night("elsewhere", started="2026-11-25", zoo="transformers"),
    ]
    for item in nights:
        library.save_night(item, 5 if item.id == "slower" else None)

    def name(asked: str, **options: str) -> str | None:
        found = library.night(asked, **options)
        return None if found is None else found.id

    assert name("last") == name("last-green") == "elsewhere"
    assert name("last", zoo="tiny") == "slower"
    assert name("last", zoo="tiny", other_than="slower") == "withdrew"
    assert name("last-green", zoo="tiny") == "green"
    assert name("last-green", zoo="tiny", other_than="green") is None


def test_a_job_is_known_once_it_is_done(library: Library) -> None:
    assert library.job("n1/cut/bert") is None
    library.save_job("n1/cut/bert", "cut", '{"regions": 3}', worker="host:17")
    library.save_job("n1/work/0", "work", "1")
    library.save_job("n1/work/0", "work", "2")
    assert library.job("n1/cut/bert") == '{"regions": 3}'
    assert library.jobs() == {"n1/cut/bert": '{"regions": 3}', "n1/work/0": "2"}
    assert library.jobs("work") == {"n1/work/0": "2"}


def test_a_write_that_fails_in_the_middle_leaves_nothing_and_the_next_one_works(
    library: Library,
) -> None:
    before = night(regions=(region(),))
    library.save_night(before)
    twice = before.evolve(zoo=None)
    with pytest.raises(sqlite3.IntegrityError):
        library.save_night(twice)
    library.put(kernel())
    assert library.nights() == (before,)


def test_a_library_of_0_bytes_is_no_new_one(tmp_path: Path) -> None:
    path = tmp_path / "library.sqlite"
    with Library(path, pytest.fail) as new:
        assert new.mended is None
    path.write_bytes(b"")
    said: list[str] = []
    with Library(path, said.append) as emptied:
        assert emptied.mended == said[0]
    assert "0 bytes" in said[0]
    with Library(path, pytest.fail) as begun:
        assert begun.mended is None
