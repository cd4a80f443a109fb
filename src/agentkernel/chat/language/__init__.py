"""What is asked for at the prompt? A small grammar from plain English to typed requests."""

from agentkernel.chat.language.grammar import EXAMPLES
from agentkernel.chat.language.understanding import understand

__all__ = ["EXAMPLES", "understand"]
