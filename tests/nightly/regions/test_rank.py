"""Is a budget spent on regions that do not overlap, in the order of what they promise?"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentkernel.domain.region import ModelCut, Region, RegionUse
from agentkernel.nightly.regions.ranking import (
    LEAST_SECONDS,
    LEAST_SHARE,
    MOST_OPS_AT_ONCE,
    WaitingRegions,
    WorkOrder,
    ancestors,
    budget_of,
    heaviest,
    least_share,
    merge_cuts,
)
from tests.nightly.regions.plain_order import chosen_regions, order_of_work


def region(key, uses, eager_us=10.0, bound_us=5.0, parts=(), device_ops=0):
    """`uses`: (model, path, share)."""
    made = tuple(RegionUse(model=m, path=p, share=s) for m, p, s in uses)
    share = sum(use.share for use in made)
    headroom = 1 - bound_us / eager_us
    return Region(
        signature=f"{key:016x}",
        name=f"R{key}",
        ops=(),
        shapes="",
        uses=made,
        basis="estimated",
        eager_us=eager_us,
        bound_us=bound_us,
        share=share,
        headroom=headroom,
        score=share * headroom,
        parts=tuple(f"{part:016x}" for part in parts),
        device_ops=device_ops,
    )


LAYER = region(1, [("m", "0", 0.3), ("m", "1", 0.3)], parts=(2, 3))
LINEAR = region(2, [("m", "0.a", 0.2), ("m", "1.a", 0.2)])
NORM = region(3, [("m", "0.n", 0.1), ("m", "1.n", 0.1), ("m", "n", 0.05)])
TREE = (LINEAR, NORM, LAYER)


def beside(one, regions):
    others = [item for item in regions if item.signature != one.signature]
    return WaitingRegions(len(others), sum(item.score for item in others))


def names(regions):
    return [item.name for item in regions]


def test_a_parent_goes_before_its_parts_and_a_part_keeps_its_other_uses():
    order = order_of_work(TREE)
    assert names(order) == ["R1", "R3"]
    assert [use.path for use in order[1].uses] == ["n"]
    assert order[1].share == pytest.approx(0.05)
    assert order[1].score == pytest.approx(0.025)


def test_where_nothing_was_found_the_parts_come_in():
    order = order_of_work(TREE, {LAYER.signature: False})
    assert names(order) == ["R2", "R3"]
    assert len(order[1].uses) == 3


def test_where_a_kernel_was_found_its_parts_stay_out():
    done = {LAYER.signature: True}
    assert names(order_of_work(TREE, done)) == ["R3"]
    assert names(chosen_regions(TREE, done)) == ["R1", "R3"]


def test_a_part_that_was_found_is_no_work_again_when_its_parent_fails():
    done = {NORM.signature: True, LAYER.signature: False}
    assert names(order_of_work(TREE, done)) == ["R2"]
    assert len(chosen_regions(TREE, done)[1].uses) == 3


def test_what_is_small_or_at_its_bound_is_left_out_and_its_parts_are_not():
    small = region(1, [("m", "0", LEAST_SHARE * 0.9)])
    shared = region(2, [("m", "0.a", LEAST_SHARE * 0.9), ("m", "b", 0.1)])
    assert names(order_of_work((small, shared))) == ["R2"]
    at_bound = region(1, [("m", "0", 0.5)], bound_us=10.0)
    assert names(order_of_work((at_bound, region(2, [("m", "0.a", 0.4)])))) == ["R2"]


def test_one_path_with_two_shapes_goes_to_the_better():
    low, high = region(1, [("m", "0", 0.1)]), region(2, [("m", "0", 0.2)])
    assert names(order_of_work((low, high))) == ["R2"]
    assert names(order_of_work((low, high), {high.signature: False})) == ["R1"]


def test_equal_paths_of_two_models_do_not_cover_each_other():
    outer = region(1, [("one", "0", 0.3)])
    inner = region(2, [("two", "0.a", 0.3)])
    assert names(order_of_work((outer, inner))) == ["R1", "R2"]


def test_a_region_of_many_ops_is_left_to_its_parts():
    large = region(1, [("m", "0", 0.6)], parts=(2,), device_ops=MOST_OPS_AT_ONCE + 1)
    part = region(2, [("m", "0.a", 0.2)], device_ops=3)
    alone = region(3, [("m", "1", 0.2)], device_ops=MOST_OPS_AT_ONCE + 1)
    assert order_of_work((large, part, alone)) == (part, alone)
    assert WorkOrder((large, part, alone)).regions == (part, alone)
    small = large.evolve(device_ops=MOST_OPS_AT_ONCE)
    assert order_of_work((small, part)) == (small,)


def test_a_whole_model_is_worked_on_beside_its_parts_however_large():
    whole = region(1, [("m", "", 1.0), ("other", "0", 0.2)], parts=(2,), device_ops=50)
    part = region(2, [("m", "0", 0.5), ("m", "0.a", 0.2)], device_ops=3)
    for work in (order_of_work((whole, part)), WorkOrder((whole, part)).regions):
        assert names(work) == ["R1", "R2"]
        assert [use.path for use in work[1].uses] == ["0"]
    order = WorkOrder((whole, part))
    assert order.answered(whole.signature, True) == order.answered(part.signature, True) == ()


def test_in_a_large_zoo_a_region_may_have_less_of_the_time():
    assert least_share(1) == least_share(10) == LEAST_SHARE
    assert least_share(2000) == LEAST_SHARE / 200
    small = region(1, [("m", "0", 0.0002)])
    assert WorkOrder((small,), least_share(2000)).regions == (small,)
    assert not WorkOrder((small,), least_share(10)).regions


PATHS = ("", "0", "0.a", "0.a.x", "0.b", "1", "1.a", "10", "10.a")


@st.composite
def zoos(draw):
    """Cuts of two models whose parts never take more than the whole; some regions are shared."""
    cuts = []
    for model in ("one", "two"):
        chosen = draw(st.lists(st.sampled_from(PATHS), unique=True, min_size=1))
        keys = {path: draw(st.integers(1, 6)) for path in chosen}
        share = {path: 0.3 / (1 + path.count(".")) ** 2 for path in chosen}
        grouped = {}
        for path, key in keys.items():
            grouped.setdefault(key, []).append((model, path, share[path]))
        regions = tuple(
            region(key, uses, bound_us=draw(st.floats(0, 10))) for key, uses in grouped.items()
        )
        time_us = draw(st.floats(1, 1e4))
        cuts.append(ModelCut(model=model, basis="estimated", time_us=time_us, regions=regions))
    weights = {"one": draw(st.floats(0.1, 10))}
    return merge_cuts(cuts, weights)


@given(zoos(), st.dictionaries(st.integers(1, 6), st.booleans()))
def test_no_submodule_is_in_two_chosen_regions(regions, answers):
    done = {f"{key:016x}": value for key, value in answers.items()}
    chosen = chosen_regions(regions, done)
    places = [(use.model, use.path) for item in chosen for use in item.uses]
    assert len(places) == len(set(places))
    for model, path in places:
        assert not any((model, above) in places for above in ancestors(path))
    inside = (use.share for item in chosen for use in item.uses if use.path)
    assert sum(inside) <= 1 + 1e-9
    work = order_of_work(regions, done)
    assert {item.signature for item in work}.isdisjoint(done)
    assert len({item.signature for item in work}) == len(work)
    assert [item.score for item in work] == sorted((x.score for x in work), reverse=True)


@given(zoos())
def test_answering_false_to_all_comes_to_an_end_with_every_worthy_region_tried(regions):
    done = {}
    while work := order_of_work(regions, done):
        done[work[0].signature] = False
    worthy = {item.signature for item in regions if item.share >= LEAST_SHARE and item.score > 0}
    tops = {item.signature for item in order_of_work(regions)}
    assert tops <= done.keys() <= worthy


@given(zoos(), st.floats(0, 4000), st.booleans())
def test_the_budget_is_never_overspent(regions, seconds, found):
    left, done = seconds, {}
    while work := order_of_work(regions, done):
        budget = budget_of(work[0], beside(work[0], work), left)
        assert 0 <= budget <= left
        if budget:
            assert budget >= LEAST_SECONDS
            assert budget <= max(LEAST_SECONDS, left / 3)
        left -= budget
        done[work[0].signature] = found
    assert left >= 0


def test_a_budget_is_in_proportion_to_the_score():
    small, large = region(1, [("m", "0", 0.1)]), region(2, [("m", "1", 0.9)])
    assert budget_of(small, beside(small, (small, large)), 1000) == pytest.approx(100)
    assert budget_of(large, beside(large, (small, large)), 1000) == pytest.approx(1000 / 3)
    assert budget_of(small, beside(small, (small, large)), 100) == LEAST_SECONDS
    assert budget_of(small, beside(small, (small, large)), LEAST_SECONDS - 1) == 0.0


def cut(model, time_us, *regions):
    return ModelCut(model=model, basis="estimated", time_us=time_us, regions=regions)


def test_shares_are_those_of_the_weighted_time():
    cuts = [
        cut("one", 100.0, region(1, [("one", "0", 0.5)], eager_us=50.0)),
        cut("two", 300.0, region(1, [("two", "a", 0.5)], eager_us=150.0, parts=(4,))),
    ]
    (plain,) = merge_cuts(cuts, {})
    assert plain.share == pytest.approx(0.5)
    assert [use.share for use in plain.uses] == pytest.approx([0.125, 0.375])
    assert plain.eager_us == pytest.approx(100.0)
    assert plain.headroom == pytest.approx(0.95)
    assert plain.parts == (f"{4:016x}",)
    (heavy,) = merge_cuts(cuts, {"one": 3.0})
    assert [use.share for use in heavy.uses] == pytest.approx([0.25, 0.25])
    assert merge_cuts([], {}) == ()


def test_the_heaviest_set_of_paths_has_none_within_another():
    assert heaviest({"0": 3.0, "0.a": 2.0, "0.b": 2.0, "1": 1.0}) == 5.0
    assert heaviest({"0": 5.0, "0.a": 2.0, "0.b": 2.0, "10.a": 1.0}) == 6.0
    assert heaviest({"": 1.0, "0.a.b": 2.0, "0.a": 0.5}) == 2.0
    assert heaviest({}) == 0.0
