from pathlib import Path

import pytest

from tests.redteam.small import small_corpus


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    """A hostile and an honest candidate."""
    return small_corpus(tmp_path / "corpus")
