import os
from pathlib import Path

import pytest


@pytest.fixture(scope="session", autouse=True)
def _own_triton_cache(tmp_path_factory):
    """Real compilation, in a cache of its own, with the fusion default that the worker has."""
    cache: Path = tmp_path_factory.mktemp("triton")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRITON_CACHE_DIR", str(cache))
        patch.setenv("TRITON_DEFAULT_FP_FUSION", "1")
        if "TRITON_INTERPRET" in os.environ:
            patch.delenv("TRITON_INTERPRET")
        yield
