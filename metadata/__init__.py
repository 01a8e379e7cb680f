"""What the cluster agrees on: the image, its changes, and the records and snapshots that carry them."""
