"""A partition as its leader or follower sees it: log end, in-sync replicas, high watermark, waiters."""
