"""KRaft as a pure state machine: events and the time in, one `Output` out, without socket, file, clock or loop."""
