"""The cases of a judgement: seeds, shapes, distributions, memory layouts and edge inputs."""
