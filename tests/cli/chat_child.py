"""`agentkernel` as a process, with sessions that need no agents."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from chat_fake import FakeSession

from agentkernel.cli.app import main
from agentkernel.cli.chat import sessions

sessions.session_class = lambda: FakeSession

if __name__ == "__main__":
    main()
