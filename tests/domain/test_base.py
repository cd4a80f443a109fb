"""Does `evolve` change what it names, and is what it does not know refused, by mypy too?"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from agentkernel.domain.base import Frozen

ROOT = Path(__file__).parent.parent.parent


class Part(Frozen):
    size: int = 1


class Whole(Frozen):
    name: str
    part: Part = Part()
    sizes: tuple[int, ...] = ()


class Named(Whole):
    by: str | None = None


def test_what_is_named_changes_and_the_rest_stays() -> None:
    old = Named(name="a", sizes=(1,))
    new = old.evolve(name="b", by="me")
    assert type(new) is Named
    assert new == Named(name="b", sizes=(1,), by="me")
    assert old == Named(name="a", sizes=(1,))
    assert new.part is old.part
    assert old.evolve() == old


def test_it_is_the_copy_that_pydantic_makes() -> None:
    old = Whole(name="a")
    new, copied = old.evolve(sizes=(2,)), old.model_copy(update={"sizes": (2,)})
    assert new == copied
    assert new.model_fields_set == copied.model_fields_set == {"name", "sizes"}
    with pytest.raises(ValidationError, match="frozen"):
        new.name = "c"  # type: ignore[misc]


def test_values_are_not_validated() -> None:
    wrong: dict[str, Any] = {"sizes": "none"}
    assert Whole(name="a").evolve(**wrong).sizes == "none"


def test_an_unknown_name_is_one_line() -> None:
    wrong: dict[str, Any] = {"nmae": "b", "_size": 2}
    with pytest.raises(TypeError) as caught:
        Whole(name="a").evolve(**wrong)
    assert str(caught.value) == "Whole has no field '_size', 'nmae', only name, part, sizes"
    with pytest.raises(TypeError, match="Part has no field 'evolve', only size"):
        Part().evolve(evolve=1)


CHECKED = """\
from agentkernel.domain.base import Frozen

class Part(Frozen):
    size: int = 1
    def grown(self) -> int:
        return self.evolve(size=self.size + 1).size

class Named(Part):
    name: str = ""

def check(named: Named, other: Part | Named) -> None:
    other.evolve(size=2)
    named.evolve(size=2, name="b").evolve(name="c").name.upper()
    named.evolve(nmae="b")
    named.evolve(size="2")
    named.evolve(2)
    other.evolve(name="b")
"""
WRONG = [
    '14: error: Unexpected keyword argument "nmae" for "evolve" of "Named"',
    '15: error: Argument "size" to "evolve" of "Named" has incompatible type "str"; expected "int"',
    '16: error: Too many positional arguments for "evolve" of "Named"',
    '17: error: Unexpected keyword argument "name" for "evolve" of "Part"',
]


def test_mypy_refuses_a_wrong_name_and_a_wrong_type(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the settings that `make check` runs with; what else is imported is not read."""
    file = tmp_path / "checked.py"
    file.write_text(CHECKED)
    monkeypatch.chdir(ROOT)
    base = "src/agentkernel/domain/base.py"
    told = [f"--cache-dir={tmp_path / 'cache'}", "--follow-imports=skip", "--hide-error-codes"]
    api = pytest.importorskip("mypy.api")
    said, errors, code = api.run([*told, base, str(file)])
    assert (errors, code) == ("", 1)
    lines = [line.split("checked.py:")[-1] for line in said.splitlines() if "base.py" not in line]
    assert [line for line in lines if ": error: " in line] == WRONG
