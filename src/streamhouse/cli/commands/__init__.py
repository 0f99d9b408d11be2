"""The commands, one module each; `cli.main.COMMANDS` lists them."""
