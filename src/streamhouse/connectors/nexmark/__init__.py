"""The `nexmark` connector: the persons, auctions and bids of the benchmark Nexmark."""
