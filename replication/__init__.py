"""A partition's leader and follower state: log end, in-sync replicas, high watermark, and who waits for what."""
