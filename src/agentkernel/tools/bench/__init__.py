"""How is any coder measured on any suite of problems, and what do the figures say?"""
