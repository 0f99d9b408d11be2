"""`--from-scratch`: restarts the continuous queries of a script as new queries."""
