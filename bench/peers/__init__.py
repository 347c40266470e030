"""What a team would build instead: a web app that enqueues, a worker that calls. Runs in .venvs/peers."""
