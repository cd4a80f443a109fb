"""Generated examples of the agents' tests may take as long as the machine's load makes them."""

from hypothesis import settings

settings.register_profile("any load", deadline=None)
settings.load_profile("any load")
