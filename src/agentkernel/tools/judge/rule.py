"""The versions of the precision rule, by which a certificate can be judged as it was."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Rule:
    """What one version of the rule asks and allows.

    `honest`: the errors of honest evaluations count beside eager's. `pointed_at`: an index that
    differs is judged by the value that it points at. `shifted`: inputs with a mean far above their
    spread are among the cases. `products`: operand and accumulator types of products are read.
    """

    version: int
    honest: bool
    pointed_at: bool
    shifted: bool
    products: bool


RULES = {
    1: Rule(1, honest=False, pointed_at=False, shifted=False, products=False),
    2: Rule(2, honest=True, pointed_at=True, shifted=True, products=True),
}
"""1: twice eager's error and a floor in ulp. 2: docs/judge.md, "The precision rule"."""
NEWEST = RULES[2]


def rule_of(version: int) -> Rule:
    """The rule of that version; the newest for one that is not known here."""
    return RULES.get(version, NEWEST)
