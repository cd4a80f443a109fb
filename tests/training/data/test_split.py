"""Does no structure stand on both sides, and does every kind of module get its turn?"""

from __future__ import annotations

import random

from hypothesis import example, given
from hypothesis import strategies as st

from agentkernel.training.data.card import (
    NearDuplicates,
    SplitModule,
    hold_out,
    kernel_family,
    quotas,
    rows_of_tasks,
)
from agentkernel.training.settings import TASKS

KEYS = st.lists(st.sampled_from([f"op{n}" for n in range(12)]), max_size=2, unique=True)
MODULES = st.lists(st.tuples(KEYS, st.booleans(), st.sampled_from("ab")), max_size=40)


def modules_of(values: list[tuple[list[str], bool, str]]) -> list[SplitModule]:
    return [
        SplitModule(f"{place:03d}", tuple(keys), cell, fits)
        for place, (keys, fits, cell) in enumerate(values)
    ]


@given(MODULES, st.integers(1, 10), st.integers(0, 3))
def test_no_structure_stands_on_both_sides(
    values: list[tuple[list[str], bool, str]], wanted: int, seed: int
) -> None:
    modules = modules_of(values)
    held = hold_out(modules, wanted, seed)
    tested = {key for item in modules if item.sha256 in held.modules for key in item.keys}
    apart = held.modules | held.kin
    learned = {key for item in modules if item.sha256 not in apart for key in item.keys}
    assert not tested & learned
    assert len(held.modules) <= wanted
    assert not held.modules & held.kin
    assert all(item.fits for item in modules if item.sha256 in held.modules)
    shuffled = random.Random(seed).sample(modules, len(modules))
    assert hold_out(shuffled, wanted, seed) == held


def test_the_seed_chooses_and_all_cells_take_part() -> None:
    modules = [SplitModule(f"{n:04d}", (f"op{n}",), f"cell{n % 4}", True) for n in range(400)]
    held = hold_out(modules, 40, 0)
    cells = [item.cell for item in modules if item.sha256 in held.modules]
    assert {name: cells.count(name) for name in cells} == {f"cell{n}": 10 for n in range(4)}
    assert hold_out(modules, 40, 1).modules != held.modules


def test_a_common_structure_and_one_that_nobody_read_are_not_held_out() -> None:
    common = [SplitModule(f"a{n:03d}", ("relu",), "c", True) for n in range(300)]
    unread = [SplitModule(f"b{n:03d}", (), "c", True) for n in range(100)]
    rare = [SplitModule(f"c{n:03d}", (f"op{n}", "x" * n), "c", True) for n in range(9)]
    assert {name[0] for name in hold_out([*common, *unread, *rare], 50, 0).modules} == {"c"}


def test_shares_are_held_while_every_task_has_rows() -> None:
    shares = {"write": 0.4, "optimise": 0.3, "repair": 0.3}
    there = {"write": 900, "optimise": 400, "repair": 500}
    assert rows_of_tasks(there, shares) == {"write": 533, "optimise": 400, "repair": 400}  # type: ignore[arg-type]
    short = rows_of_tasks({"write": 900, "optimise": 3, "repair": 500}, shares)  # type: ignore[arg-type]
    assert short == {"write": 667, "optimise": 3, "repair": 500}
    third = rows_of_tasks({"write": 600, "repair": 900}, {"write": 0.7, "repair": 0.3})
    assert third == {"write": 600, "optimise": 0, "repair": 257}
    assert rows_of_tasks({}, shares) == dict.fromkeys(TASKS, 0)  # type: ignore[arg-type]
    assert rows_of_tasks({"write": 9, "repair": 9}, {"write": 1.0}) == {
        "write": 9,
        "optimise": 0,
        "repair": 0,
    }


@example(there={"a": 46, "aa": 32, "aaa": 46}, wanted=123)
@given(st.dictionaries(st.text("abcdef", min_size=1), st.integers(0, 50)), st.integers(0, 200))
def test_quotas_take_all_that_is_wanted_and_the_large_cells_give_way(
    there: dict[str, int], wanted: int
) -> None:
    taken = quotas(there, wanted)
    assert sum(taken.values()) == min(wanted, sum(there.values()))
    cut = [taken[name] for name in there if taken[name] < there[name]]
    assert all(taken[name] <= there[name] for name in there)
    if cut:
        assert max(cut) - min(cut) <= 1
        # A cell of just one more than the others are cut to may be taken whole.
        assert max(taken.values()) <= min(cut) + 1


def test_the_family_is_that_of_the_operator_that_says_most() -> None:
    assert kernel_family("mul add layer_norm") == "normalisation"
    assert kernel_family("relu linear layer_norm") == "contraction"
    assert kernel_family("") == "unknown"


def test_a_copy_under_other_names_is_near_and_another_module_is_not() -> None:
    from agentkernel.training.data.generator import make_problem

    text = make_problem(3).text
    like = NearDuplicates([text])
    assert like.near(text.replace("def forward", "# A comment.\n    def forward"))
    assert not like.near(make_problem(4).text)
    assert not NearDuplicates([]).near(text)


def test_a_rare_kind_is_taught_as_well_as_tested() -> None:
    many = [SplitModule(f"m{number}", (f"many {number}",), "many", True) for number in range(300)]
    rare = [SplitModule(f"r{number}", (f"rare {number}",), "rare", True) for number in range(20)]
    held = hold_out([*many, *rare], 60, 0).modules
    assert len(held) == 60
    assert sum(name.startswith("r") for name in held) == 5
    for few in (1, 2, 3):
        held = hold_out([*many, *rare[:few]], 60, 0).modules
        assert not any(name.startswith("r") for name in held)
    assert sum(name.startswith("r") for name in hold_out([*many[:8], *rare], 14, 0).modules) == 8
