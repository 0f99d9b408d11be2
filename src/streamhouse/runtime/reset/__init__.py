"""`--from-scratch`: the continuous queries of a script begin anew."""
