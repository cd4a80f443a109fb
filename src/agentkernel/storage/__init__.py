"""Files, databases and settings that survive a kill."""
