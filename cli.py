"""Runs the command from a checkout: `python cli.py plan …`."""

from planner.cli.app import main

if __name__ == "__main__":
    main()
