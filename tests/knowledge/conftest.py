import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from agentkernel.knowledge.base import KnowledgeBase, open_base


@pytest.fixture(scope="session")
def base_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("knowledge")


@pytest.fixture(scope="session")
def base(base_folder: Path) -> Iterator[KnowledgeBase]:
    """All packaged entries; tests that share it must not change it."""
    with open_base(base_folder) as opened:
        opened.refresh()
        yield opened


@pytest.fixture
def server(tmp_path: Path) -> Iterator[str]:
    """A Chroma server of its own, on the loopback."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    program = Path(sys.executable).with_name("chroma")
    if not program.exists():
        pytest.skip("the chroma program is not installed")
    command = [str(program), "run", "--path", str(tmp_path / "server"), "--host", "127.0.0.1"]
    child = subprocess.Popen(
        [*command, "--port", str(port)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        for _ in range(200):
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.1)
        yield f"http://127.0.0.1:{port}"
    finally:
        child.kill()
        child.wait()
