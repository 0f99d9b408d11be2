"""What is done with a whole tree: its SQL, its drawing, its execution."""
