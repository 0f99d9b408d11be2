"""The Python modules of user-defined functions: imported, typed by their annotations, called."""
