"""How are many prompts answered at once by a model in memory?"""

from agentkernel.training.decoding.answers import OnAnswer, answer_all
from agentkernel.training.decoding.drawing import TokenSampling

__all__ = ["OnAnswer", "TokenSampling", "answer_all"]
