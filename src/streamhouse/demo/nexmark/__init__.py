"""The Nexmark demo: views over the persons, auctions and bids of an auction house."""
