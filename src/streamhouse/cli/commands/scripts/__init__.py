"""Commands about scripts that are not run: `graph` draws one, `test` tests it on given rows."""
