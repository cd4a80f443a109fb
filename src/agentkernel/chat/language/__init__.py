"""Reader of English sentences at the prompt, from text to typed requests."""

from agentkernel.chat.language.grammar import EXAMPLES
from agentkernel.chat.language.understanding import understand

__all__ = ["EXAMPLES", "understand"]
