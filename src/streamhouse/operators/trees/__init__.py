"""What is done with a whole tree: its SQL, its drawing, and the recomputation of a view."""
