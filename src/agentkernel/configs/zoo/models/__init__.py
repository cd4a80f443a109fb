"""How are the models of the packaged zoos built?"""
