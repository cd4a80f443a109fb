"""How is a captured module turned into readable Triton?"""
