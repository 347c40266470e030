"""What the ledger can do, one subject a file. Every function runs in a transaction and returns its answer."""
