"""How good is it to copy? The nearest training problem's kernel as it is, the baseline that a
model must beat to have learned anything."""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence

from agentkernel.agents.models.local_text import Sample
from agentkernel.domain.exchange import Message
from agentkernel.training.data.rows import FENCE, kernel_of
from agentkernel.training.decoding import OnAnswer
from agentkernel.training.training import TrainingRow

TOKEN = re.compile(r"[A-Za-z_]\w*|\d+|[^\w\s]")


class NearestWriter:
    """Answers with the kernels of those "write" rows whose problems have most tokens in common with
    the question: the cosine of token sets, rare tokens counting more (inverse document frequency,
    Sparck Jones 1972)."""

    ranked = True

    def __init__(self, rows: Iterable[TrainingRow]) -> None:
        self._kernels: list[str] = []
        problems: list[frozenset[str]] = []
        for row in rows:
            kernel = kernel_of(row.completion)
            if row.task == "write" and kernel is not None:
                self._kernels.append(kernel)
                problems.append(tokens_of(row.messages[0].text))
        counts = Counter(token for found in problems for token in found)
        self._weight = {
            token: math.log(1 + len(problems) / count) for token, count in counts.items()
        }
        self._places: dict[str, list[int]] = defaultdict(list)
        self._lengths: list[float] = []
        for place, found in enumerate(problems):
            for token in found:
                self._places[token].append(place)
            self._lengths.append(self._length(found))

    def _length(self, tokens: Iterable[str]) -> float:
        return math.sqrt(math.fsum(self._weight.get(token, 0.0) ** 2 for token in tokens)) or 1.0

    def nearest(self, problem: str, count: int) -> list[str]:
        """At most `count` different kernels, the nearest problem's first."""
        asked = tokens_of(problem)
        scores: Counter[int] = Counter()
        for token in asked:
            for place in self._places.get(token, ()):
                scores[place] += self._weight[token] ** 2  # type: ignore[assignment]
        ranked = sorted(scores, key=lambda place: (-scores[place] / self._lengths[place], place))
        return list(dict.fromkeys(self._kernels[place] for place in ranked))[:count]

    def write(
        self,
        conversations: Sequence[Sequence[Message]],
        samples: int,
        wrote: OnAnswer = lambda number, total: None,
    ) -> list[list[Sample]]:
        """The `samples` nearest kernels as files; an empty answer where there are fewer."""
        found: list[list[Sample]] = []
        for messages in conversations:
            kernels = self.nearest(messages[0].text, samples)
            answers = [Sample(f"```python\n{kernel}```", "stop", 0) for kernel in kernels]
            found.append(answers + [Sample("", "stop", 0)] * (samples - len(answers)))
            wrote(len(found), len(conversations))
        return found


def tokens_of(text: str) -> frozenset[str]:
    """The different words, numbers and signs of the module in a question, or of bare text."""
    fenced = FENCE.search(text)
    return frozenset(TOKEN.findall(fenced[2] if fenced else text))


__all__ = ["NearestWriter", "tokens_of"]
