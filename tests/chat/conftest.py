"""A session at work on a small module, before and after its first run."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from agentkernel.chat.replies import StepRan
from agentkernel.chat.session import Session
from tests.chat import scripted_session


@pytest.fixture
def shop() -> scripted_session.SessionShop:
    return scripted_session.shop()


@pytest.fixture
def session(tmp_path: Path, shop: scripted_session.SessionShop) -> Iterator[Session]:
    with scripted_session.begin(tmp_path, shop) as begun:
        yield begun


@pytest.fixture
def ran(session: Session) -> Session:
    """After one run: c1 is right and fast, c2 wrong, c3 right and slow."""
    (reply,) = session.say("run")
    assert isinstance(reply, StepRan)
    return session
