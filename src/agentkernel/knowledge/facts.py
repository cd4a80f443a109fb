"""What do filters ask of an entry?"""

from __future__ import annotations

import json
from collections.abc import Iterable
from functools import lru_cache
from typing import NamedTuple

from agentkernel.domain.knowledge import Entry, EntryKind, Filters, Verified


class Facts(NamedTuple):
    """What filters ask of an entry."""

    kind: EntryKind
    verified: Verified
    licence: str
    architectures: tuple[str, ...]

    def passes(self, filters: Filters) -> bool:
        """Whether `filters` let it through, its id aside."""
        return (
            (not filters.kinds or self.kind in filters.kinds)
            and (not filters.verified or self.verified in filters.verified)
            and (not filters.licences or self.licence in filters.licences)
            and (
                filters.architecture is None
                or not self.architectures
                or filters.architecture in self.architectures
            )
        )


def facts_of(entry: Entry) -> Facts:
    """The facts of `entry`; equal facts share one object, for there are few kinds of them."""
    return facts_in(group_of(entry))


def group_of(entry: Entry) -> str:
    """All facts in one string. Entries with the same one pass the same filters, and of many
    thousand entries there are some dozen groups: a filter is asked once for each of these."""
    return json.dumps([entry.kind, entry.verified, entry.licence, sorted(entry.architectures)])


@lru_cache(maxsize=4096)
def facts_in(group: str) -> Facts:
    """The facts that `group_of` wrote. Raises ValueError or TypeError for another text."""
    kind, verified, licence, architectures = json.loads(group)
    return Facts(kind, verified, licence, tuple(architectures))


def passing(groups: Iterable[str], filters: Filters) -> list[str]:
    """Those of `groups` whose entries `filters` let through, their ids aside."""
    return [group for group in groups if facts_in(group).passes(filters)]
