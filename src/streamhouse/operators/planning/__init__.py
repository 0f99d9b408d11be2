"""From a resolved SELECT to its tree of operators (`query_tree.tree_of`)."""
