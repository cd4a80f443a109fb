"""What does an answer of a session look like on a screen?"""

from agentkernel.cli.pictures.replies import place_words, render

__all__ = ["place_words", "render"]
