"""A session at work on a small module, before and after its first run."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import session_shop
from agentkernel.chat.replies import StepRan
from agentkernel.chat.session import Session


@pytest.fixture
def shop() -> session_shop.SessionShop:
    return session_shop.shop()


@pytest.fixture
def session(tmp_path: Path, shop: session_shop.SessionShop) -> Iterator[Session]:
    with session_shop.begin(tmp_path, shop) as begun:
        yield begun


@pytest.fixture
def ran(session: Session) -> Session:
    """After one run: c1 is right and fast, c2 wrong, c3 right and slow."""
    (reply,) = session.say("run")
    assert isinstance(reply, StepRan)
    return session
