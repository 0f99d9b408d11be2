"""The commands, one module each; `cli.main.COMMANDS` maps their names to these modules."""
