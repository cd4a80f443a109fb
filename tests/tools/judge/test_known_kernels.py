"""What a candidate's first worker compiled is there in its next one, and is never in the way."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentkernel.tools.compile.binaries import Binary, enter, kept, size_of, taken
from agentkernel.tools.judge.judge import workers_taken
from agentkernel.tools.judge.known_kernels import OPS, is_entry, kernels_of, open_knowing
from agentkernel.tools.judge.settings import JudgeSettings
from agentkernel.tools.sandbox.session import MOST_IDLE
from tests.tools.compile.test_binaries import _double, _walk, compiled

HERE = JudgeSettings(device="cpu", seed=0)


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "triton"))
    monkeypatch.setenv("TRITON_DEFAULT_FP_FUSION", "1")  # without it Triton 3.9 warns
    return tmp_path / "triton"


def by_hash(binaries: list[Binary]) -> dict[str, Binary]:
    return {binary["hash"]: binary for binary in binaries}


def test_all_of_a_cache_is_given(cache: Path) -> None:
    made = [taken(compiled(_double)), taken(compiled(_walk))]
    (cache / "claims").mkdir()
    (cache / "claims" / "lock").touch()
    half = cache / "HALF"
    half.mkdir()
    (half / "kernel.json").write_text("{}")
    module = {"hash": "ab" * 32, "launcher.so": made[0][next(x for x in made[0] if x != "hash")]}
    enter([module])
    assert by_hash(kept()) == by_hash([*made, module])


def test_what_does_not_fit_is_left_out_the_largest_first(cache: Path) -> None:
    made = sorted([taken(compiled(_double)), taken(compiled(_walk))], key=lambda x: size_of([x]))
    assert kept(size_of(made)) == made
    assert kept(size_of(made) - 1) == made[:1]
    assert kept(0) == []


def test_the_next_worker_has_them(cache: Path) -> None:
    made = [taken(compiled(_double))]
    assert all(map(is_entry, made))
    with open_knowing(HERE, made) as worker:
        reply = worker.call(f"{OPS}:give_kernels", {}, 20)
    assert reply == {"kernels": made}


@pytest.mark.parametrize(
    "wrong",
    [
        {"hash": "ab" * 16, "kernel.json": "no base64 of what is compressed", "kernel.cubin": ""},
        {"hash": "ab" * 16, "../../out.so": "eJwDAAAAAAE="},
    ],
)
def test_what_cannot_be_entered_costs_nothing_but_time(wrong: Binary) -> None:
    with open_knowing(HERE, [wrong]) as worker:
        assert worker.alive
        assert worker.call(f"{OPS}:give_kernels", {}, 20) == {"kernels": []}


def test_a_worker_that_interprets_is_not_asked() -> None:
    with open_knowing(HERE, ()) as worker:
        assert kernels_of(worker, HERE) == ()


WORDS = st.text(st.sampled_from("ab/.-\x00 \n"), max_size=6)


@given(
    st.one_of(
        st.none(), st.text(max_size=5), st.lists(st.integers(), max_size=2),
        st.dictionaries(WORDS, st.one_of(st.text(max_size=4), st.integers()), max_size=3),
        st.fixed_dictionaries({"hash": st.just("ab" * 16)}, optional={"../x": st.text(max_size=2)}),
    )
)  # fmt: skip
def test_an_entry_has_a_hash_and_plain_names(item: object) -> None:
    if is_entry(item):
        assert set(item["hash"]) <= set("0123456789abcdef")
        assert not any("/" in name or name.startswith(".") for name in item)
        assert all(isinstance(value, str) for value in item.values())


def test_all_workers_of_a_judgement_may_wait_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the profile's and one that interprets: what is put there later ends none of them."""
    assert workers_taken("x = 1", HERE) == 2
    monkeypatch.setattr("agentkernel.tools.judge.judge.plain_form", lambda source: source)
    most = workers_taken("x = 1", HERE.evolve(kernelbench=True))
    assert most == 4
    assert most + 2 <= MOST_IDLE
