"""The next query of a view: computed beside the one that runs, compared with it, swapped in."""
