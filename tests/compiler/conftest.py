from collections.abc import Iterator

import pytest

from tests.compiler.sandboxed_drop_in import Sandboxed, sandboxed


@pytest.fixture(scope="module")
def box() -> Iterator[Sandboxed]:
    """A sandbox that runs the drop-ins of one file, one after the other."""
    with sandboxed() as found:
        yield found
