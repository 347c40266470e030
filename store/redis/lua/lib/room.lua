-- What ends or keeps what is there is taken also when the server has no memory left: once a step has written, the server
-- lets it go on, and this first write takes none. Only what brings more is refused.
call('HDEL', KEYS[1], '')
