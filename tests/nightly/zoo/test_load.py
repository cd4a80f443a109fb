from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import cloudpickle
import pytest
import torch
from transformers import DynamicCache
from transformers.modeling_outputs import BaseModelOutput

from agentkernel.domain.errors import ProblemError
from agentkernel.domain.nightly import Zoo, ZooModel
from agentkernel.nightly.zoo.loader import (
    LoadedModel,
    flat_outputs,
    load_model,
)
from agentkernel.nightly.zoo.reader import read_zoo
from tests.nightly.zoo.calls import run_call

NET = """
import torch
from torch import nn
from beside import WIDTH

class Net(nn.Module):
    def __init__(self, width=WIDTH):
        super().__init__()
        if width < 0:
            raise ValueError('no such width')
        self.linear = nn.Linear(width, width)
        self.register_buffer('steps', torch.arange(3))

    def forward(self, x, *, mask=None, scale=1.0):
        return {'out': self.linear(x) * scale, 'rest': (x, None)}

def make(width):
    return Net(width)

def no_module():
    return 3

def pair():
    return torch.randn(2, 4), torch.arange(3)

def named():
    return {'x': torch.randn(2, 4), 'mask': [torch.ones(2)]}

def one_tensor():
    return torch.randn(2, 4)

def broken():
    raise KeyError('size')

table = {}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "net.py").write_text(NET)
    (tmp_path / "beside.py").write_text("WIDTH = 4\n")
    return tmp_path


@pytest.fixture
def load(folder: Path) -> Callable[..., LoadedModel]:
    sys.modules.pop("beside", None)

    def load_one(**fields: object) -> LoadedModel:
        values = {"name": "net", "model": "net.py:Net", "inputs": ["x=f32[2,4]"], **fields}
        model = ZooModel.model_validate(values)
        return load_model(Zoo(name="zoo", models=(model,), folder=str(folder)), model)

    return load_one


Load = Callable[..., LoadedModel]


def test_a_model_is_seeded_in_eval_mode_and_without_gradients(load: Load) -> None:
    first, second = (load().build() for _ in range(2))
    assert not first.training
    assert not any(item.requires_grad for item in first.parameters())
    assert first.state_dict().keys() == second.state_dict().keys()
    torch.testing.assert_close(first.state_dict(), second.state_dict(), rtol=0, atol=0)
    other = load(seed=1).build().get_parameter("linear.weight")
    assert not torch.equal(other, first.get_parameter("linear.weight"))


def test_module_and_floating_inputs_are_cast(load: Load) -> None:
    loaded = load(dtype="bfloat16", inputs=["x=f32[2,4]", "mask=i64[2]<9", "scale=2.0"])
    module, call = loaded.build(), loaded.make_call()
    assert module.get_parameter("linear.weight").dtype == torch.bfloat16
    assert module.get_buffer("steps").dtype == torch.int64
    assert call.args == ()
    x, mask, scale = (call.kwargs[key] for key in ("x", "mask", "scale"))
    assert isinstance(x, torch.Tensor)
    assert isinstance(mask, torch.Tensor)
    assert (x.dtype, mask.dtype, scale) == (torch.bfloat16, torch.int64, 2.0)
    assert flat_outputs(run_call(module, call))[0].dtype == torch.bfloat16


def test_without_a_dtype_the_model_keeps_its_own(load: Load) -> None:
    loaded = load()
    assert loaded.build().get_parameter("linear.weight").dtype == torch.float32
    assert flat_outputs(run_call(loaded.build(), loaded.make_call()))[0].dtype == torch.float32


def test_a_seed_gives_one_set_of_inputs_on_every_device(load: Load) -> None:
    loaded = load()
    same, again, other = (loaded.make_call(seed=seed).kwargs["x"] for seed in (0, 0, 1))
    assert isinstance(same, torch.Tensor)
    assert isinstance(again, torch.Tensor)
    assert isinstance(other, torch.Tensor)
    assert torch.equal(same, again)
    assert not torch.equal(same, other)
    assert loaded.make_call("meta").kwargs["x"].device.type == "meta"  # type: ignore[attr-defined]


def test_on_meta_nothing_takes_memory(load: Load) -> None:
    module = load(init={"width": 1 << 24}).build("meta")
    assert module.get_parameter("linear.weight").device.type == "meta"


def test_functions_make_modules_and_inputs(load: Load) -> None:
    loaded = load(model="net.py:make", init={"width": 4}, inputs=[], make_inputs="net.py:pair")
    call = loaded.make_call()
    assert [type(item) for item in call.args] == [torch.Tensor, torch.Tensor]
    assert call.kwargs == {}
    named = load(inputs=[], make_inputs="net.py:named", dtype="float16").make_call()
    assert named.args == ()
    assert list(named.kwargs) == ["x", "mask"]
    assert named.kwargs["mask"][0].dtype == torch.float16  # type: ignore[index]


def test_forward_runs_without_gradients(load: Load) -> None:
    module = load().build().requires_grad_(True)
    assert not flat_outputs(run_call(module, load().make_call()))[0].requires_grad


@pytest.mark.parametrize(
    ("fields", "line"),
    [
        ({"model": "no_such_package.net:Net"}, "No module named 'no_such_package'"),
        ({"model": "torch.no_such:Net"}, "No module named 'torch.no_such'"),
        ({"model": "net.py:Nett"}, "has no 'Nett'. Did you mean 'Net'?"),
        ({"model": "transformers:BertModell"}, "has no 'BertModell'"),
        ({"model": "net.py:table"}, "'table' is a dict. Expected a torch module class"),
        ({"model": "builtins:dict"}, "the class dict, which is no torch module"),
        ({"model": "syntax.py:Net"}, "syntax.py line 1:"),
        ({"model": "raises.py:Net"}, "raises.py raised RuntimeError when imported: at once"),
        ({"inputs": [], "make_inputs": "net.py:nothing"}, "has no 'nothing'"),
    ],
)
def test_what_does_not_import_is_one_line(
    load: Load, folder: Path, fields: dict[str, object], line: str
) -> None:
    (folder / "syntax.py").write_text("class Net(:\n")
    (folder / "raises.py").write_text("raise RuntimeError('at once')\n")
    with pytest.raises(ProblemError) as caught:
        load(**fields)
    assert str(caught.value).startswith("Model 'net': ")
    assert line in str(caught.value)
    assert "Next: " in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("fields", "line"),
    [
        ({"init": {"width": -1}}, "raised ValueError: no such width ("),
        ({"init": {"wdith": 1}}, "Expected: it accepts (wdith=1). Next: correct 'init'"),
        ({"model": "net.py:no_module"}, "gave a int. Expected a torch module"),
    ],
)
def test_a_constructor_that_fails_is_one_line(
    load: Load, fields: dict[str, object], line: str
) -> None:
    with pytest.raises(ProblemError) as caught:
        load(**fields).build()
    assert line in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("maker", "line"),
    [
        ("one_tensor", "gave a Tensor. Expected a tuple of arguments, or a dict"),
        ("no_module", "gave a int. Expected a tuple"),
        ("broken", "raised KeyError: 'size' ("),
    ],
)
def test_make_inputs_that_gives_something_else_is_one_line(
    load: Load, maker: str, line: str
) -> None:
    with pytest.raises(ProblemError) as caught:
        load(inputs=[], make_inputs=f"net.py:{maker}").make_call()
    assert line in str(caught.value)


def test_the_hash_covers_what_would_change_the_model(load: Load, folder: Path) -> None:
    first = load().sha256
    assert load().sha256 == first
    assert load(weight=3.0).sha256 == first, "a weight changes no model"
    changed = [load(seed=1), load(dtype="float16"), load(init={"width": 4}), load(name="other")]
    changed.append(load(inputs=["x=f32[3,4]"]))
    (folder / "beside.py").write_text("WIDTH = 4  # the same\n")
    changed.append(load())
    (folder / "net.py").write_text(NET + "# a comment\n")
    changed.append(load())
    hashes = {first, *(item.sha256 for item in changed)}
    assert len(hashes) == 1 + len(changed)


def test_the_hash_covers_the_versions_of_libraries(
    load: Load, monkeypatch: pytest.MonkeyPatch
) -> None:
    from agentkernel.nightly.zoo import loader

    entry = {"model": "agentkernel.configs.zoo.models.pretrained:from_config"}
    before = {name: load(**fields).sha256 for name, fields in (("own", {}), ("lib", entry))}
    real = loader.version_of
    monkeypatch.setattr(
        loader, "version_of", lambda name: "99" if name == "transformers" else real(name)
    )
    assert load().sha256 == before["own"]
    assert load(**entry).sha256 != before["lib"], "imported inside of a function"


def test_a_changed_file_is_executed_anew_and_the_same_one_only_once(
    load: Load, folder: Path
) -> None:
    first = load()
    assert load().constructor is first.constructor
    (folder / "net.py").write_text(NET.replace("'rest': (x, None)", "'more': x"))
    output = run_call(load().build(), load().make_call())
    assert isinstance(output, dict)
    assert list(output) == ["out", "more"]


@pytest.mark.slow
def test_a_module_from_a_file_reaches_another_process(load: Load, tmp_path: Path) -> None:
    packed = tmp_path / "module.pkl"
    packed.write_bytes(cloudpickle.dumps(load().build()))
    code = (
        "import pickle, sys, torch;"
        f"m = pickle.load(open({str(packed)!r}, 'rb'));"
        "print(m(torch.ones(2, 4))['out'].shape)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd="/", capture_output=True, text=True, check=True
    )
    assert "[2, 4]" in done.stdout


@dataclass
class Pair:
    left: torch.Tensor
    right: object = None


def test_outputs_are_flat_and_in_order() -> None:
    a, b, c, d = (torch.full((1,), float(index)) for index in range(4))
    nested = {"z": BaseModelOutput(last_hidden_state=a, hidden_states=(b,)), "a": [Pair(c, {1: d})]}
    assert [item.item() for item in flat_outputs((nested, None, 3, "x"))] == [0, 1, 2, 3]
    assert flat_outputs(a) == (a,)


def test_what_cannot_be_compared_is_one_line() -> None:
    with pytest.raises(ProblemError, match=r"a DynamicCache as its output\[1\]\['past'\]"):
        flat_outputs((torch.ones(1), {"past": DynamicCache()}))
    with pytest.raises(ProblemError, match="returned tuple without a tensor"):
        flat_outputs((None, 3))


def test_a_file_in_kernelbenchs_form_needs_neither_inputs_nor_init(tmp_path: Path) -> None:
    (tmp_path / "wide.py").write_text(
        "import torch\nfrom torch import nn\n\n"
        "class Wide(nn.Linear):\n    pass\n\n"
        "def get_inputs():\n    return [torch.randn(3, 5)]\n\n"
        "def get_init_inputs():\n    return [5, 7]\n"
    )
    (tmp_path / "zoo.yaml").write_text("models: [{name: wide, model: 'wide.py:Wide'}]")
    zoo = read_zoo(tmp_path / "zoo.yaml")
    loaded = load_model(zoo, zoo.models[0])
    (output,) = flat_outputs(run_call(loaded.build(), loaded.make_call()))
    assert output.shape == (3, 7)


def test_an_init_of_the_entry_goes_before_get_init_inputs(tmp_path: Path) -> None:
    (tmp_path / "wide.py").write_text(
        "import torch\nfrom torch import nn\n\n"
        "class Wide(nn.Linear):\n    pass\n\n"
        "def get_inputs():\n    return [torch.randn(3, 5)]\n\n"
        "def get_init_inputs():\n    return [5, 7]\n"
    )
    entry = "{name: wide, model: 'wide.py:Wide', init: {in_features: 5, out_features: 2}}"
    (tmp_path / "zoo.yaml").write_text(f"models: [{entry}]")
    zoo = read_zoo(tmp_path / "zoo.yaml")
    assert load_model(zoo, zoo.models[0]).build().weight.shape == (2, 5)
