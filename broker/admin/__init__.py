"""Topics, configs and telemetry as administrators see them."""
