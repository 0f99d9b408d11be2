"""The web server: routes, middleware, access control, and how responses are sent.

Imports all of `serve`. The rest of `serve` does not import it, except for type annotations.
"""
