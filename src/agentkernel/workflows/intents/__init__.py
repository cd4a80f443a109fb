"""What is asked for at the prompt? A small grammar from plain English to typed requests."""

from agentkernel.workflows.intents.grammar import EXAMPLES
from agentkernel.workflows.intents.understanding import understand

__all__ = ["EXAMPLES", "understand"]
