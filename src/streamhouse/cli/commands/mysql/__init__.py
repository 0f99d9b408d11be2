"""Commands about MySQL servers: `sync` follows their tables, `check` tests what it needs."""
