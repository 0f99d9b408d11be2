"""What is done with a whole tree: its drawing, its execution."""
