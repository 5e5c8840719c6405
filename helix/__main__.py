"""`python -m helix` is the command `helix`."""

from helix.cli import main

if __name__ == "__main__":
    main()
