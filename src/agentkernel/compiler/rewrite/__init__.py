"""Exact algebra on captured graphs: cheaper graphs with the same outputs."""

from agentkernel.compiler.rewrite.draft import Change, Cost, Rewritten, Rule, Step
from agentkernel.compiler.rewrite.engine import DEAD, rewrite
from agentkernel.compiler.rewrite.rules import RULES

__all__ = ["DEAD", "RULES", "Change", "Cost", "Rewritten", "Rule", "Step", "rewrite"]
