"""Where the files of a local model are found, and the one line where they are not."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from agentkernel.agents.models.local_presets import HUB_TIMEOUT_S, model_folder
from agentkernel.domain.errors import ModelUnavailable

ASK = """
import sys
from agentkernel.agents.models import local_presets
from agentkernel.domain.errors import ModelUnavailable
local_presets.HUB_TIMEOUT_S = 1.0
try:
    print(local_presets.model_folder(sys.argv[1]))
except ModelUnavailable as error:
    print(error)
"""


def ask(name: str, cache: Path, **environment: str) -> str:
    """What a process with these hub settings, which are read at import, finds."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith("HF_")}
    done = subprocess.run(
        [sys.executable, "-c", ASK, name], env={**kept, "HF_HOME": str(cache), **environment},
        capture_output=True, text=True, timeout=120, check=True,
    )  # fmt: skip
    return done.stdout.removesuffix("\n")


def test_a_folder_is_taken_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").touch()
    assert model_folder(str(tmp_path)) == tmp_path


def test_pickled_weights_are_refused(tmp_path: Path) -> None:
    (tmp_path / "pytorch_model.bin").touch()
    with pytest.raises(ModelUnavailable, match="pickled weights can run code"):
        model_folder(str(tmp_path))


def test_a_name_that_no_hub_can_have_is_not_asked_for(tmp_path: Path) -> None:
    with pytest.raises(ModelUnavailable, match="neither a folder nor a name on the hub") as caught:
        model_folder(str(tmp_path / "absent model"))
    assert "\n" not in str(caught.value)


def test_a_cached_copy_is_found_without_the_hub(tmp_path: Path) -> None:
    whole = tmp_path / "hub" / "models--someone--tiny"
    copy = whole / "snapshots" / ("0" * 40)
    copy.mkdir(parents=True)
    (whole / "refs").mkdir()
    (whole / "refs" / "main").write_text("0" * 40)
    (copy / "model.safetensors").touch()
    assert ask("someone/tiny", tmp_path, HF_HUB_OFFLINE="1") == str(copy)


def test_offline_the_line_says_where_it_looked_and_what_to_do(tmp_path: Path) -> None:
    line = ask("someone/tiny", tmp_path, HF_HUB_OFFLINE="1")
    assert line.startswith("Model 'someone/tiny' is not here: looked for a folder of that name and")
    assert f"in {tmp_path}/hub; HF_HUB_OFFLINE forbids asking the hub." in line
    assert "'hf download someone/tiny'" in line
    assert "\n" not in line


def test_a_hub_that_refuses_is_named(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    line = ask("someone/tiny", tmp_path, HF_ENDPOINT=f"http://127.0.0.1:{port}")
    assert "the hub says ConnectError" in line
    assert "\n" not in line


@pytest.mark.slow
def test_a_silent_hub_is_not_waited_for(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        begin = time.monotonic()
        endpoint = f"http://127.0.0.1:{server.getsockname()[1]}"
        line = ask("someone/tiny", tmp_path, HF_ENDPOINT=endpoint)
    assert "the hub says ReadTimeout" in line
    assert time.monotonic() - begin < 25
    assert HUB_TIMEOUT_S <= 5
