"""How long may one generated example take? As long as the machine's load makes it."""

from hypothesis import settings

settings.register_profile("any load", deadline=None)
settings.load_profile("any load")
