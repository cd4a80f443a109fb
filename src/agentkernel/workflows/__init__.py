"""In which order does it happen? LangGraph wiring."""
