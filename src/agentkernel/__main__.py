"""`python -m agentkernel`: the same as the command `agentkernel`."""

from agentkernel.cli.app import main

if __name__ == "__main__":
    main()
