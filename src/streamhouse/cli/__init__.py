"""The `streamhouse` command, one module a command."""
