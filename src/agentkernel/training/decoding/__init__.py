"""Batched decoding of many prompts by a model in memory."""

from agentkernel.training.decoding.decoder import OnAnswer, answer_all
from agentkernel.training.decoding.llama import TokenSampling

__all__ = ["OnAnswer", "TokenSampling", "answer_all"]
