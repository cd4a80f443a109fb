"""Reinforcement learning on the judge's verdicts and measured speed."""
