"""What each command takes on its line, declared for `helix/cli.py`; nothing heavy is loaded here."""
