"""Providers of the steps of a partition: own kernels and library calls."""

from agentkernel.compiler.providers.protocol import AnySchedule, Decision, Setting
from agentkernel.compiler.providers.registry import provider_of

__all__ = ["AnySchedule", "Decision", "Setting", "provider_of"]
