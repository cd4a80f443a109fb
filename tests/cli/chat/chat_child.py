"""`agentkernel` as a process, with sessions that need no agents."""

from __future__ import annotations

from agentkernel.cli.app import main
from agentkernel.cli.chat import sessions
from tests.cli.chat.chat_fake import FakeSession

sessions.session_class = lambda: FakeSession

if __name__ == "__main__":
    main()
