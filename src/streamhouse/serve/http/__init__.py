"""The web server: routes, what is checked around each request, and how answers go out.

Imports all of `serve`; the rest of `serve` imports nothing of it (annotations may name its types).
"""
