"""KRaft as a pure state machine: events and the time in, one `Output` out. No socket, file, clock or loop in here."""
