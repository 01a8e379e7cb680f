"""Every configuration key once: name, type, default, valid values, documentation, dynamic or not."""
