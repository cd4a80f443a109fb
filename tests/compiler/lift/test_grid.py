import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentkernel.compiler.lift.inductor_code import LaunchConfig
from agentkernel.compiler.lift.wrapper_steps import Unliftable, launch_grid


def config(*grid: str, prefix: tuple[str, ...] = ()) -> LaunchConfig:
    x, y, z = (*grid, "1", "1")[:3]
    return LaunchConfig(
        constants=(("XBLOCK", 8),), num_warps=4, num_stages=1, prefix=prefix, grid=(x, y, z)
    )


@given(size=st.integers(1, 10**6), block=st.integers(1, 4096))
def test_a_grid_holds_every_element(size: int, block: int) -> None:
    text = launch_grid(config(f"-((xnumel) // -({block}))"), {"xnumel": size})
    (programs,) = eval(text, {})
    assert (programs - 1) * block < size <= programs * block


def test_grids_read_as_a_person_writes_them() -> None:
    sizes = {"xnumel": 100, "ynumel": 7}
    assert launch_grid(config("xnumel"), sizes) == "(100,)"
    assert launch_grid(config("-((xnumel) // -(8))", "ynumel"), sizes) == "(-(-100 // 8), 7)"
    assert launch_grid(config("max(xnumel, 3)", "1", "2"), sizes) == "(100, 1, 2)"
    assert launch_grid(config("-((xnumel) // -(128))"), sizes) == "(1,)"
    prefix = ("rest = xnumel % 8", "part = 0 if rest == 0 else 1")
    assert launch_grid(config("xnumel // XBLOCK + part", prefix=prefix), sizes) == "(13,)"


def test_a_grid_of_unknown_size_is_refused() -> None:
    with pytest.raises(Unliftable, match="ks0"):
        launch_grid(config("ks0 * 2"), {"xnumel": 1})
