"""Exact algebra on captured graphs: cheaper graphs with the same outputs."""

from agentkernel.tools.rewrite.engine import DEAD, rewrite
from agentkernel.tools.rewrite.record import Change, Cost, Rewritten, Rule, Step
from agentkernel.tools.rewrite.rules import RULES

__all__ = ["DEAD", "RULES", "Change", "Cost", "Rewritten", "Rule", "Step", "rewrite"]
