"""Reader of English sentences at the prompt, from text to typed requests."""

from agentkernel.chat.language import grammar, kernel_words
from agentkernel.chat.language.understanding import understand

__all__ = ["EXAMPLES", "understand"]

EXAMPLES = {**grammar.EXAMPLES, **kernel_words.EXAMPLES}
"""A sentence for each request: the help, and what a model is shown."""
