"""How does a session about one module go on, turn by turn, with a way back from each?"""
