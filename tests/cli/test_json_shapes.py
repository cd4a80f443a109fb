"""Keys and types of what `--json` prints, as they stand in tests/golden/json.

Commands that take minutes print values of one model each: its schema stands for them.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import TypeAdapter

from agentkernel.bench.suite import Row
from agentkernel.bench.summary import Summary
from agentkernel.domain.nightly import Comparison, NightlyRun
from agentkernel.domain.profile import Profile
from agentkernel.domain.verdict import Verdict
from agentkernel.tools.certificate.replay import Replay
from agentkernel.training.data.card import Card
from agentkernel.workflows.events import Event
from agentkernel.workflows.outcome import Result
from tests.cli.commands import Cli
from tests.goldens import as_text, same_as_golden, shape

TESTS = Path(__file__).parents[1]
GOLDEN = TESTS / "golden" / "json"
EXAMPLES = TESTS.parent / "examples"
COMMANDS = {
    "plan": ("plan", str(EXAMPLES / "softmax.py"), "--target", "h100"),
    "targets": ("targets",),
    "train-cost": ("train", "cost"),
}
MODELS = {
    "events": Event,
    "optimize": Result,
    "judge": Verdict,
    "profile": Profile,
    "verify": Replay,
    "bench row": Row,
    "bench summary": Summary,
    "batch night": NightlyRun,
    "batch comparison": Comparison,
    "train data": Card,
}
Schema = dict[str, object]


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_prints_the_keys_and_types_of_its_golden_file(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cli: Cli
) -> None:
    monkeypatch.chdir(tmp_path)
    printed = cli.json([*COMMANDS[name], "--json"])
    text = as_text(shape(printed))
    same_as_golden(GOLDEN / f"{name}.json", text, f"'{' '.join(COMMANDS[name])} --json'")


@pytest.mark.parametrize("name", MODELS)
def test_a_model_is_printed_with_the_keys_and_types_of_its_golden_file(name: str) -> None:
    schema = TypeAdapter(MODELS[name]).json_schema(mode="serialization")
    text = as_text(bare(schema, schema.get("$defs", {})))
    same_as_golden(GOLDEN / f"{name.replace(' ', '-')}.json", text, f"The JSON of {name}")


def bare(part: object, names: Schema, within: tuple[str, ...] = ()) -> object:
    """A schema without names of classes and texts: what they stand for takes their place."""
    if isinstance(part, list):
        return [bare(item, names, within) for item in part]
    if not isinstance(part, dict):
        return part
    if "$ref" in part:
        name = str(part["$ref"]).rpartition("/")[2]
        return "..." if name in within else bare(names[name], names, (*within, name))
    left_out = ("title", "description", "$defs", "discriminator", "default")
    is_named = isinstance(part.get("properties"), dict)
    found = {key: item for key, item in part.items() if key not in left_out or not is_schema(part)}
    if is_named:
        found["properties"] = {
            key: bare(item, names, within) for key, item in dict(part["properties"]).items()
        }
    return {
        key: item if key == "properties" and is_named else bare(item, names, within)
        for key, item in found.items()
    }


def is_schema(part: Schema) -> bool:
    """False for an object whose keys are fields."""
    return any(key in part for key in ("type", "anyOf", "oneOf", "$ref", "const", "enum"))
