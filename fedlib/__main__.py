"""`python -m fedlib` is the command `fedlib`, also where nothing is installed."""

from fedlib.cli import main

if __name__ == "__main__":
    main()
