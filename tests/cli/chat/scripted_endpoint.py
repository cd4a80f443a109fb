"""A scripted model for a session: `python -m tests.cli.chat.scripted_endpoint PORT`.

An OpenAI-compatible endpoint on loopback that writes, at the pace of a model, the drop-ins for
examples/softmax.py of a known story: wrong, fixed, then one kernel in place of two. It reads the
sentences of READ as a model would.
"""

from __future__ import annotations

import json
import re
import sys
import threading
from collections.abc import Callable
from contextlib import ExitStack

from tests.workflows.model_story import (
    SOFTMAX_FILLED,
    SOFTMAX_ONE,
    SOFTMAX_TWO,
    Seen,
    all_of,
    seen,
    text_of,
)

# isort: split
from tests.agents.models.chat_server import ChatServer, Says

PAUSE_S = 0.08
"""Between two pieces of 40 characters: some 100 tokens a second."""
FIRST, MENDED, FASTER = SOFTMAX_FILLED.source, SOFTMAX_TWO, SOFTMAX_ONE
WORDS = {
    FIRST: (
        "Two kernels to begin with, and not yet the fused one: the first takes the maximum and "
        "the sum of a row, the second writes the shares. Lanes past the end of a row are loaded "
        "as 0."
    ),
    MENDED: (
        "The lanes past the end of a row took part in its maximum and in its sum: a 0 there is "
        "exp(0 - top). They are loaded as minus infinity now, which changes neither."
    ),
    FASTER: (
        "One kernel in place of the two, which both read x: a program makes its two passes, "
        "statistics and elements, over a row that it keeps in registers. One read, one write."
    ),
}
READ: dict[str, list[dict[str, object]]] = {
    "I fancy trying the smaller sibling of this card": [{"name": "target", "target": "a100"}],
    "my boss wonders whether all that was worth a penny": [{"name": "cost"}],
}
"""Sentences that the grammar does not know -> what they ask for."""
READER = "Say which of the known requests a sentence asks for."
SENTENCE = re.compile(r"^## Sentence\n`+text\n(.*?)\n`+$", re.M | re.S)


def author(pause_s: float = PAUSE_S) -> Callable[[dict[str, object]], Says]:
    """What answers a request."""

    def answer(request: dict[str, object]) -> Says:
        whole = all_of(request)
        if whole.startswith(READER):
            found = SENTENCE.search(whole)
            asked = READ.get(found[1].strip(), []) if found else []
            return told(json.dumps({"intents": asked}), whole, pause_s)
        source = drafted(seen(request), text_of(request))
        text = f"{WORDS[source]}\n\n```python\n{source}```\n"
        return told(text, whole, pause_s)

    return answer


def drafted(shown: Seen, text: str) -> str:
    """The file that the story has next."""
    if shown.refused is not None:
        return MENDED
    return FASTER if shown.best is not None else FIRST


def told(text: str, asked: str, pause_s: float) -> Says:
    """An answer that counts four characters as a token."""
    return Says(text, prompt=len(asked) // 4, completion=len(text) // 4, pause_s=pause_s)


def main(port: int) -> int:
    """Answer until Ctrl-C; 2 where the port cannot be had."""
    with ExitStack() as stack:
        try:
            server = stack.enter_context(ChatServer([author()], forever=True, port=port))
        except OSError as error:
            why = f"Port {port} cannot be used: {error.strerror}."
            print(f"{why} Next: another port, or 0 for any.", file=sys.stderr)
            return 2
        print(
            f"agentkernel chat examples/softmax.py --target h100 \\\n  --coder "
            f"chat:openai:scripted --base-url {server.url} -c judge.seeds=1"
        )
        try:
            threading.Event().wait()
        except KeyboardInterrupt:
            return 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else 0))
