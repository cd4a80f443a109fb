"""What the commands draw on a terminal: figures, tables, charts, live progress and results."""
