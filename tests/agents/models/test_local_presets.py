"""`local:...` names weights, and the way to ask them."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from agentkernel.agents.models.local_presets import OWN_FILE, PRESETS, load_preset, parse_local
from agentkernel.agents.prompts import render
from agentkernel.domain.errors import SettingError
from agentkernel.domain.exchange import Sampling
from agentkernel.tools.problem.loading import load_problem
from tests.agents.models.model_cases import EXAMPLE, request

GOLDEN = Path(__file__).parents[2] / "golden" / "prompts"


def test_a_name_and_an_adapter(tmp_path: Path) -> None:
    preset = parse_local("local:someone/base+other/tuned")
    assert (preset.model, preset.adapter, preset.prompt) == ("someone/base", "other/tuned", "coder")
    assert parse_local("someone/base").adapter is None
    odd = tmp_path / "c++"
    odd.mkdir()
    assert parse_local(f"local:{odd}").model == str(odd)


def test_kernelllm() -> None:
    preset = parse_local("local:kernelllm")
    assert (preset.model, preset.prompt) == ("facebook/KernelLLM", "one_shot")
    assert preset.sampling(samples=4, seed=7) == Sampling(
        temperature=1.0, top_p=0.97, max_tokens=4096, samples=4, seed=7
    )


def test_the_tuned_qwen_needs_its_adapter() -> None:
    preset = parse_local("local:kernelbook-qwen+me/tuned")
    assert preset.model.startswith("Qwen/Qwen2.5-Coder-3B")
    assert (preset.adapter, preset.prompt) == ("me/tuned", "translate")
    with pytest.raises(SettingError, match=r"Expected local:kernelbook-qwen\+NAME_OR_PATH"):
        parse_local("local:kernelbook-qwen")


def test_a_preset_of_the_users_own(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text("model: ./merged\nprompt: translate\nquantization: 4bit\n")
    preset = parse_local(f"local:{file}")
    assert (preset.model, preset.quantization) == ("./merged", "4bit")
    file.write_text("model: ./merged\ntemprature: 1\n")
    with pytest.raises(SettingError, match="temprature") as caught:
        parse_local(f"local:{file}")
    assert "\n" not in str(caught.value)
    with pytest.raises(SettingError, match="Cannot read the preset"):
        parse_local(f"local:{tmp_path / 'absent.yaml'}")


@pytest.mark.parametrize("spec", ["local:", "local:+adapter", "local:base+"])
def test_a_name_that_is_missing_is_one_line(spec: str) -> None:
    with pytest.raises(SettingError, match="names no model"):
        parse_local(spec)


def test_an_unknown_preset_names_those_there_are() -> None:
    with pytest.raises(SettingError, match=r"Known: kernelbook-qwen, kernelllm\."):
        load_preset("kernellm")


@pytest.mark.parametrize("name", PRESETS)
def test_the_prompt_of_a_preset_takes_what_the_coders_does(name: str) -> None:
    problem, asked = load_problem(str(EXAMPLE)), request()
    values = {
        "problem": problem.problem,
        "target": asked.target,
        "goals": asked.goals,
        "plan": asked.plan,
        "hypothesis": asked.hypothesis,
        "retrieved": asked.retrieved,
    }
    prompt = load_preset(name).prompt
    text = render(prompt, **values)
    assert text == (GOLDEN / f"{prompt}.md").read_text()
    blocks = re.findall(r"```python\n(.*?)```", text, re.S)
    for block in blocks:
        ast.parse(block)
    assert problem.problem.source.strip() in blocks[-1]
    assert "ModelNew" in text
    assert not re.search(r"[ \t]$|\n\n\n\n", text, re.M)


def test_a_folder_s_own_file_names_prompt_and_weights(tmp_path: Path) -> None:
    (tmp_path / OWN_FILE).write_text("model: .\nprompt: taught\nmax_tokens: 700\n")
    preset = parse_local(f"local:{tmp_path}")
    assert (preset.model, preset.adapter) == (str(tmp_path), None)
    assert (preset.prompt, preset.max_tokens) == ("taught", 700)


def test_an_adapter_s_own_file_names_its_base(tmp_path: Path) -> None:
    (tmp_path / OWN_FILE).write_text("model: base/model\nadapter: .\nprompt: taught\n")
    preset = parse_local(f"local:{tmp_path}")
    assert (preset.model, preset.adapter) == ("base/model", str(tmp_path))


def test_a_folder_without_the_file_is_asked_as_before(tmp_path: Path) -> None:
    assert parse_local(f"local:{tmp_path}").prompt == "coder"


def test_a_broken_own_file_is_named(tmp_path: Path) -> None:
    (tmp_path / OWN_FILE).write_text("prompt: sing\n")
    with pytest.raises(SettingError, match=r"agentkernel\.yaml"):
        parse_local(f"local:{tmp_path}")
