"""The LangGraph loop that optimises one module, and what drives it."""
