"""What does a person type? One typer command a file."""
