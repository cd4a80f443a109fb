"""Planner, retriever, coder, debugger and reviewer: the agents that decide what a run tries."""
