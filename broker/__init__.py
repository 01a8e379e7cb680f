"""The daemon: server, connections, dispatch, one handler file per API, entry point."""
