from pathlib import Path

import pytest

from agentkernel.knowledge.index import KnowledgeIndex
from agentkernel.knowledge.store import open_index


@pytest.fixture(scope="session")
def index_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("knowledge")


@pytest.fixture(scope="session")
def index(index_folder: Path) -> KnowledgeIndex:
    """An index over all packaged documents; tests that share it must not change it."""
    return open_index(index_folder)
