"""The command line: typer commands that parse flags, call the library and render the answer."""
