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
