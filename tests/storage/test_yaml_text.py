"""Whatever is wrong with YAML is one error of YAML, in bounded time and memory."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import yaml

from agentkernel.bench.batch import read_list
from agentkernel.domain.errors import AgentKernelError
from agentkernel.nightly.zoo.reader import read_zoo, top_keys
from agentkernel.storage.configuration import (
    MOST_BYTES,
    compose_yaml,
    load_settings,
    parse_yaml,
    read_yaml,
)

UNKIND = {
    "date": "a: 2001-99-99",
    "digits": "a: " + "9" * 5_000,
    "deep": "a: " + "[" * 20_000,
    "long": "a: " + "x" * MOST_BYTES,
    "unhashable": "? [a]\n: b",
}


@pytest.mark.parametrize("text", UNKIND.values(), ids=UNKIND)
def test_it_is_one_error(tmp_path: Path, text: str) -> None:
    with pytest.raises(yaml.YAMLError):
        parse_yaml(text)
    path = tmp_path / "file.yaml"
    path.write_text(text)
    for read in (read_zoo, read_list, lambda file: load_settings(file, (), {})):
        with pytest.raises(AgentKernelError) as raised:
            read(path)
        assert "\n" not in str(raised.value)
    assert top_keys(path) in (("a",), (), None)


def test_no_pipe_is_waited_for_and_no_huge_file_read(tmp_path: Path) -> None:
    pipe, huge = tmp_path / "pipe.yaml", tmp_path / "huge.yaml"
    os.mkfifo(pipe)
    huge.touch()
    os.truncate(huge, 2**40)
    for path in (pipe, huge):
        with pytest.raises(OSError, match=r"named pipe|more than"):
            read_yaml(path)
        with pytest.raises(OSError, match=r"named pipe|more than"):
            compose_yaml(path)
    (tmp_path / "link.yaml").symlink_to("good.yaml")
    (tmp_path / "good.yaml").write_text("a: [1, x]")
    assert read_yaml(tmp_path / "link.yaml") == {"a": [1, "x"]}
