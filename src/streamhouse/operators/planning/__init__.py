"""From a resolved SELECT to its tree of operators, and from that to the plan of a view."""
