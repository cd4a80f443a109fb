"""Is the order that is kept up to date the one that is made anew after each answer?"""

from hypothesis import given
from hypothesis import strategies as st

from agentkernel.nightly.regions.ranking import LEAST_SHARE, WorkOrder
from tests.nightly.regions.plain_order import order_of_work
from tests.nightly.regions.test_rank import LAYER, NORM, TREE, names, region, zoos


def test_what_comes_in_for_an_answer_is_told():
    order = WorkOrder(TREE)
    assert names(order.regions) == ["R1", "R3"]
    assert names(order.answered(LAYER.signature, False)) == ["R2", "R3"]
    assert order.answered(NORM.signature, True) == ()
    assert names(order.regions) == ["R2"]


def test_another_floor():
    small = region(1, [("m", "0", LEAST_SHARE * 0.9)])
    assert WorkOrder((small,)).regions == ()
    assert names(WorkOrder((small,), least_share=0.0).regions) == ["R1"]


@given(zoos(), st.data())
def test_it_is_the_order_made_anew(regions, data):
    order, done = WorkOrder(regions), {}
    while work := order_of_work(regions, done):
        assert order.regions == work
        answered = data.draw(st.sampled_from(work)).signature
        before = {item.signature: item for item in order.regions}
        done[answered] = data.draw(st.booleans())
        changed = order.answered(answered, done[answered])
        after = {item.signature: item for item in order.regions}
        assert {item.signature for item in changed} == {
            name for name, item in after.items() if item != before.get(name)
        }
    assert order.regions == ()
