"""What each command does: one file a command, loaded when it is called."""
