"""Options of a table: the supported keys, their spellings, and which exclude each other."""
