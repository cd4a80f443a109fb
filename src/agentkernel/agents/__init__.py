"""Who decides? Planner, retriever, coder and debugger."""
