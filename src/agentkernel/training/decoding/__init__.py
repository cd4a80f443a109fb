"""How are many prompts answered at once by a model in memory?"""

from agentkernel.training.decoding.answers import Wrote, answer_all
from agentkernel.training.decoding.drawing import Drawing

__all__ = ["Drawing", "Wrote", "answer_all"]
