from __future__ import annotations

from pathlib import Path

import pytest

from agentkernel.domain.errors import ProblemError
from agentkernel.nightly.zoo.reader import packaged_zoos, read_zoo, top_keys

ENTRY = "{name: a, model: 'torch.nn:ReLU', inputs: ['input=f32[4]']}"
GOOD = f"models: [{ENTRY}]"
STEPS = list(zip("abcdefgh", "bcdefghi", strict=True))
ANCHORS = "a: &a [x]\n" + "".join(
    f"{here}: &{here} [{', '.join([f'*{before}'] * 10)}]\n" for before, here in STEPS
)
"""The last of them stands for 10^8 values."""
BOMB = ", ".join(ANCHORS.strip().splitlines())
MERGES = "a: &a {x: 1}\n" + "".join(
    f"{here}: &{here} {{<<: [{', '.join([f'*{before}'] * 40)}]}}\n" for before, here in STEPS
)
"""The last of them merges 40^8 mappings."""


def write(folder: Path, text: str) -> Path:
    path = folder / "mine.yaml"
    path.write_text(text)
    return path


def entry(more: str) -> str:
    return f"models:\n- name: a\n  model: torch.nn:ReLU\n  inputs: ['input=f32[4]']\n  {more}\n"


def test_all_keys_are_read(tmp_path: Path) -> None:
    (tmp_path / "m.py").write_text("raise SystemExit('it is not run')")
    zoo = read_zoo(
        write(
            tmp_path,
            """
name: ours
target: h100
settings: {budget.rounds: 2}
models:
- {name: b, model: m.py:Net, make_inputs: m.py:inputs, dtype: bf16, weight: 2, seed: 3,
   init: {width: 8, sizes: [1, 2], text: {heads: 2}}}
- {name: a, model: 'torch.nn:ReLU', inputs: ['input=i64[4]<9'], mode: inference, training: false}
""",
        )
    )
    assert (zoo.name, zoo.target, zoo.settings) == ("ours", "h100", {"budget.rounds": 2})
    assert zoo.folder == str(tmp_path.resolve())
    first, second = zoo.models
    assert (first.dtype, first.weight, first.seed) == ("bfloat16", 2.0, 3)
    assert first.init == {"width": 8, "sizes": [1, 2], "text": {"heads": 2}}
    assert second.inputs == ("input=i64[4]<9",)
    assert second.dtype is None


def test_a_zoo_without_a_name_has_that_of_its_file(tmp_path: Path) -> None:
    assert read_zoo(write(tmp_path, GOOD)).name == "mine"


@pytest.mark.parametrize(
    ("stem", "name"), [("my (2) zoo", "my -2- zoo"), ("-x", "x"), ("(", "zoo")]
)
def test_the_name_of_a_file_becomes_that_of_a_folder(tmp_path: Path, stem: str, name: str) -> None:
    path = tmp_path / f"{stem}.yaml"
    path.write_text(GOOD)
    assert read_zoo(path).name == name


def test_a_merge_keeps_the_last_value_of_a_key(tmp_path: Path) -> None:
    text = "models:\n- &a {name: a, model: 'm:N', inputs: ['x=1'], seed: 1}\n- {<<: *a, name: b}\n"
    first, second = read_zoo(write(tmp_path, text)).models
    assert (second.name, second.seed) == ("b", first.seed)


def test_the_keys_at_the_top_are_seen_without_their_values(tmp_path: Path) -> None:
    assert top_keys(write(tmp_path, f"{MERGES}models: 1")) == (*"abcdefghi", "models")
    assert top_keys(write(tmp_path, "- a")) == ()
    assert top_keys(write(tmp_path, "models: [")) is None
    assert top_keys(tmp_path / "none") is None


def test_packaged_zoos_are_found_by_name_and_files_go_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert list(packaged_zoos()) == ["tiny", "transformers"]
    assert read_zoo(Path("tiny")).folder == str(packaged_zoos()["tiny"].parent)
    (tmp_path / "tiny").write_text(GOOD)
    assert len(read_zoo(Path("tiny")).models) == 1


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("modles: []", "Zoo mine.yaml has the unknown key 'modles'. The nearest known one is 'mod"),
        (entry("wieght: 2"), "Model 'a' of mine.yaml has the unknown key 'wieght'. The nearest"),
        (entry("zzz: 2"), "has the unknown key 'zzz'. Known: name, model"),
        (f"folder: x\n{GOOD}", "Zoo mine.yaml has the unknown key 'folder'"),
        (entry("seed: 1\n  seed: 2"), "the key 'seed' is there twice"),
        (f"models: [{ENTRY}, {ENTRY}]", "has 2 models called 'a' (entries 1, 2)"),
        (
            entry("training: true"),
            "Model 'a' of mine.yaml has 'training: True'. Expected inference",
        ),
        (entry("mode: training"), "has 'mode: training'. Expected inference"),
        (entry("training: {optimizer: adam}"), "Expected inference"),
        (f"mode: training\n{GOOD}", "Zoo mine.yaml has 'mode: training'"),
        ("models: []", "has an empty list under 'models'. Expected a list of one model or more"),
        ("name: x", "has nothing under 'models'"),
        ("models: {a: 1}", "has the dict"),
        ("models: [bert]", "Model 1 of mine.yaml is the str 'bert'"),
        ("- a", "holds the list"),
        ("", "holds nothing"),
        ("models: [", "Cannot read the zoo"),
        (
            entry("dtype: float31"),
            "has dtype 'float31'. Expected one of float32, float16, bfloat16",
        ),
        (entry("dtype: int64"), "has dtype 'int64'"),
        (entry("weight: 0"), "Model 'a' of mine.yaml: 'weight' is 0. Expected: greater"),
        (entry("make_inputs: m.py:f"), "has both 'inputs' and 'make_inputs'"),
        ("models: [{name: a, model: 'torch.nn:ReLU'}]", "has no inputs. Expected e.g."),
        (
            "models: [{name: A B, model: 'm:N', inputs: ['x=1']}]",
            "Model 'A B' of mine.yaml: 'name'",
        ),
        ("models: [{model: 'm:N', inputs: ['x=1']}]", "Model '1' of mine.yaml: 'name' is missing"),
        ("models: [{name: a, model: no.py:N, inputs: ['x=1']}]", "No such file: 'no.py'"),
        ("models: [{name: a, model: torch.nn, inputs: ['x=1']}]", "names no class or function"),
        ("models: [{name: a, model: 'a/b:N', inputs: ['x=1']}]", "no module name before the colon"),
        ("models: [{name: a, model: 'm:N', make_inputs: no.py:f}]", "No such file: 'no.py'"),
        ("models: [{name: a, model: 'm:N', inputs: ['x=f31[2]']}]", "has dtype 'f31'"),
        ("models: [{name: a, model: 'm:N', inputs: ['x=1', 'x=2']}]", "two inputs called 'x'"),
        ("models: [{name: a, model: 'm:N', inputs: 'x=f32[2]'}]", "'inputs' is 'x=f32[2]'"),
        (f"settings: {{budget.ruonds: 1}}\n{GOOD}", "The nearest known one is 'budget.rounds'"),
        (f"settings: [1]\n{GOOD}", "under 'settings'. Expected dotted keys"),
        (f"settings: {{budget.rounds: [1]}}\n{GOOD}", "'settings.budget.rounds.str'"),
        (f"target: 5\n{GOOD}", "Zoo mine.yaml: 'target' is 5"),
        (f"name: ../../evil\n{GOOD}", "Zoo mine.yaml: 'name' is '../../evil'"),
        (f"name: /tmp/evil\n{GOOD}", "'name' is '/tmp/evil'"),
        (f"name: ..\n{GOOD}", "'name' is '..'"),
        (f"name: ''\n{GOOD}", "'name' is ''"),
        (f"name: tiny:mlp\n{GOOD}", "has the name 'tiny:mlp'. Expected one without ':'"),
        (entry("seed: 99999999999999999999999"), "Model 'a' of mine.yaml: 'seed' is 9999999"),
        (entry("seed: -1"), "'seed' is -1"),
        (f"&a models: [{ENTRY}]\nname: &b [*b]", "Cannot read the zoo"),
        (f"{ANCHORS}name: *i\n{GOOD}", "stand for more than 100,000 values"),
        (f"models:\n- init: {{{BOMB}}}\n  name: *i", "stand for more than 100,000 values"),
        (f"{MERGES}{GOOD}", "has the unknown key 'a'"),
        (f"? [a]\n: 1\n{GOOD}", "Cannot read the zoo"),
        ("[" * 5000, "Cannot read the zoo"),
    ],
)
def test_a_mistake_is_one_line_with_a_next_step(tmp_path: Path, text: str, line: str) -> None:
    with pytest.raises(ProblemError) as caught:
        read_zoo(write(tmp_path, text))
    assert line in str(caught.value)
    assert "Next: " in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_file_that_does_not_parse_is_not_one_without_inputs(tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text("def get_inputs():\n    return [\n")
    text = "models: [{name: broken, model: 'broken.py:Model'}]"
    assert read_zoo(write(tmp_path, text)).models[0].make_inputs == "broken.py:get_inputs"


def test_a_zoo_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ProblemError, match=r"No such zoo: 'tinny'\. Did you mean 'tiny'\?"):
        read_zoo(Path("tinny"))
    with pytest.raises(ProblemError, match="a packaged zoo: tiny, transformers"):
        read_zoo(tmp_path / "none.yaml")
