"""Are a zoo's names looked up before a night, without running anything of theirs?"""

from __future__ import annotations

from pathlib import Path

import pytest

from agentkernel.cli.app import run
from agentkernel.domain.errors import ProblemError
from agentkernel.nightly.zoo.reader import packaged_zoos, read_zoo
from agentkernel.nightly.zoo.resolving import resolve_models


def zoo_of(folder: Path, source: str, reference: str = "m.py:Net", more: str = "") -> Path:
    (folder / "m.py").write_text(source)
    (folder / "pack").mkdir(exist_ok=True)
    (folder / "pack" / "__init__.py").write_text("from .inner import Net\n")
    (folder / "pack" / "inner.py").write_text("class Net: ...\n")
    path = folder / "mine.yaml"
    inputs = more or "inputs: ['x=f32[4]']"
    path.write_text(f"models:\n- name: a\n  model: {reference}\n  {inputs}\n")
    return path


@pytest.mark.parametrize(
    "source",
    [
        "class Net: ...",
        "Net = make()",
        "from somewhere import other as Net",
        "import Net.inner",
        "if cond:\n    class Net: ...",
        "try:\n    from fast import Net\nexcept ImportError:\n    Net = None",
        "for name in names:\n    pass\nelse:\n    Net: type = object",
        "with open(__file__) as Net:\n    pass",
        "match 1:\n    case 1:\n        (a, [Net, *b]) = given()",
        "print(Net := 3)",
        "from somewhere import *",
        "def __getattr__(name): return object",
        "globals().update(made())",
        "class Other: ...\nraise SystemExit('it is not run')\nNet = Other",
    ],
)
def test_a_name_that_may_be_there_is_let_through(tmp_path: Path, source: str) -> None:
    resolve_models(read_zoo(zoo_of(tmp_path, source)))


@pytest.mark.parametrize("reference", ["pack:Net", "pack.inner:Net", "torch.nn:ReLU", "os.path:x"])
def test_modules_beside_the_zoo_and_installed_ones_are_found(
    tmp_path: Path, reference: str
) -> None:
    resolve_models(read_zoo(zoo_of(tmp_path, "", reference)))


@pytest.mark.parametrize(
    ("source", "reference", "said"),
    [
        ("class Nett: ...", "m.py:Net", "m.py has no 'Net'. Did you mean 'Nett'?"),
        ("def f():\n    class Net: ...", "m.py:Net", "m.py has no 'Net'."),
        ("class A:\n    Net = 1", "m.py:Net", "m.py has no 'Net'."),
        ("[Nettle for Nettle in ()]\nx.Net = 1", "m.py:Net", "m.py has no 'Net'."),
        ("class Net(:\n", "m.py:Net", "m.py line 1"),
        ("", "pack.nothere:Net", "No such module: 'pack.nothere'."),
        ("", "pack.inner:Nut", "pack.inner has no 'Nut'. Did you mean 'Net'?"),
        ("", "no_such_package_x:Net", "No such file or module: 'no_such_package_x'."),
    ],
)
def test_a_name_that_is_not_there_is_one_line(
    tmp_path: Path, source: str, reference: str, said: str
) -> None:
    zoo = read_zoo(zoo_of(tmp_path, source, reference))
    with pytest.raises(ProblemError) as caught:
        resolve_models(zoo)
    assert str(caught.value).startswith(f"Model 'a' of mine: {said}")
    assert "\n" not in str(caught.value)


def test_the_function_of_inputs_is_looked_up_too(tmp_path: Path) -> None:
    path = zoo_of(tmp_path, "class Net: ...", more="make_inputs: m.py:inputs")
    with pytest.raises(ProblemError, match="has no 'inputs'"):
        resolve_models(read_zoo(path))


def test_the_packaged_zoo_resolves() -> None:
    resolve_models(read_zoo(packaged_zoos()["tiny"]))


def test_batch_says_it_before_any_work(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    path = zoo_of(tmp_path, "class Nett: ...")
    before = sorted(tmp_path.rglob("*"))
    assert run(["batch", str(path), "--out", "pages"]) == 2
    shown = capsys.readouterr()
    assert shown.err.count("\n") == 1
    assert "Model 'a' of mine: m.py has no 'Net'" in shown.err
    assert shown.out == ""
    assert sorted(tmp_path.rglob("*")) == before
