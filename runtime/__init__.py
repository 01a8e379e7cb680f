"""The only home of clock, event loop, sockets, files, threads and randomness."""
