"""The `streamhouse` command, with one module per subcommand."""
