"""The `pylogd` command: start a node or a cluster, format directories, print the configuration reference.

Only what a start needs is imported: a broker is up in tens of milliseconds, and a library for pretty help would take
longer than that. Failures that a user can cause are one line on stderr and an exit code: 2 for a bad command line or
configuration, 1 for anything that stops a start, 128 + signal number when a second signal cuts a shutdown short.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from pylogd.config.load import Loaded

EXIT_FAILURE = 1
EXIT_USAGE = 2


# Commands of the layers above: what the help says of each, and who runs the rest of the line.
Others = Mapping[str, tuple[str, Callable[[list[str]], int]]]
NO_OTHERS: Others = {}


def main(arguments: Sequence[str] | None = None, others: Others = NO_OTHERS) -> NoReturn:
    sys.exit(run(sys.argv[1:] if arguments is None else list(arguments), others))


def run(arguments: list[str], others: Others = NO_OTHERS) -> int:
    """The exit code of one command line."""
    if arguments and arguments[0] in others:
        return others[arguments[0]][1](arguments[1:])
    options = _parser(others).parse_args(arguments)
    command = options.command
    if command == "config-docs":
        from pylogd.config.docs import reference

        sys.stdout.write(reference())
        return 0
    if command == "dev":
        return _dev(options)
    try:
        loaded = _load(options.config, options.set)
    except _Failure as failure:
        print(f"pylogd: {failure}", file=sys.stderr)
        return EXIT_USAGE
    if command == "format":
        return _format(options, loaded)
    return _serve(options, loaded)


class _Failure(Exception):
    """A line for the user."""


def _parser(others: Others) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="pylogd",
        description="A Kafka-protocol broker. Without a command: start a node.",
        epilog="Without --config: one combined broker and controller on 127.0.0.1:9092, data in ./pylogd-data.",
    )
    parser.add_argument("--version", action="version", version=f"pylogd {_version()}")
    _add_config_options(parser)
    parser.add_argument("--log-level", metavar="LEVEL", help="TRACE, DEBUG, INFO, WARN or ERROR")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")
    formatting = commands.add_parser("format", help="format the log directories of a node by hand")
    _add_config_options(formatting, nested=True)
    formatting.add_argument("--cluster-id", metavar="ID", help="join this cluster (default: a new random id)")
    formatting.add_argument("--ignore-formatted", action="store_true", help="leave formatted directories alone")
    quorum = formatting.add_mutually_exclusive_group()
    quorum.add_argument("--standalone", action="store_true", help="this node is the only voter (default for one node)")
    quorum.add_argument("--initial-controllers", metavar="LIST", help="first voters: id@host:port:directory-id,...")
    quorum.add_argument("--no-initial-controllers", action="store_true", help="join an existing quorum later")
    dev = commands.add_parser("dev", help="run a cluster of several brokers on this machine")
    dev.add_argument("--brokers", type=int, default=3, metavar="N", help="how many (default 3)")
    dev.add_argument("--port", type=int, default=9092, help="port of the first broker; 0 takes free ports")
    dev.add_argument("--data", default="pylogd-data", metavar="DIR", help="where the brokers keep their data")
    dev.add_argument("--set", metavar="KEY=VALUE", action="append", default=argparse.SUPPRESS, help="for all brokers")
    commands.add_parser("config-docs", help="print the configuration reference as Markdown")
    for name, (text, _) in others.items():
        commands.add_parser(name, help=text)
    return parser


def _add_config_options(parser: argparse.ArgumentParser, nested: bool = False) -> None:
    # A subcommand must not overwrite what was given before it with its own defaults.
    default = argparse.SUPPRESS if nested else None
    parser.add_argument("--config", metavar="FILE", default=default, help="TOML or Kafka's server.properties")
    parser.add_argument(
        "--set",
        metavar="KEY=VALUE",
        action="append",
        default=default if nested else [],
        help="override one key; may be repeated",
    )


def _version() -> str:
    from pylogd import __version__

    return __version__


def _load(path: str | None, overrides: Sequence[str]) -> Loaded:
    from pylogd.config.load import LoadError, load

    try:
        text = None if path is None else _read(path)
    except OSError as error:
        raise _Failure(f"{path}: {error.strerror}") from None
    try:
        return load(path, text, overrides, environ=os.environ, read=_read)
    except LoadError as error:
        raise _Failure(str(error)) from None


def _read(path: str) -> str:
    with open(path, encoding="utf-8", errors="replace") as file:
        return file.read()


def _serve(options: argparse.Namespace, loaded: Loaded) -> int:
    from pylogd.cli.daemon import serve
    from pylogd.runtime import log_lines

    config = loaded.config
    level = options.log_level or config["pylogd.logging.level"]
    try:
        log_lines.configure(level, config["pylogd.logging.format"])
    except KeyError:
        print(f"pylogd: --log-level {level}: expected one of {', '.join(log_lines.LEVELS)}", file=sys.stderr)
        return EXIT_USAGE
    return serve(config, loaded.warnings, _version())


def _dev(options: argparse.Namespace) -> int:
    from pathlib import Path

    from pylogd.cli import dev

    if options.brokers < 1:
        print("pylogd: --brokers: expected at least 1", file=sys.stderr)
        return EXIT_USAGE
    try:
        return dev.run(Path(options.data), options.brokers, options.port, options.set)
    except (dev.DevError, OSError) as error:
        print(f"pylogd: {error}", file=sys.stderr)
        return EXIT_FAILURE


def _format(options: argparse.Namespace, loaded: Loaded) -> int:
    from pylogd.broker.cluster.formatting import FormatError, Formatter, parse_initial_controllers
    from pylogd.runtime.clock import Clock
    from pylogd.runtime.files import FileSystem

    config = loaded.config
    try:
        formatter = Formatter(config, FileSystem(), Clock(), os.urandom)
        known = formatter.verify(options.cluster_id)
        if formatter.found and not options.ignore_formatted:
            first = next(iter(formatter.found))
            raise FormatError(f"log directory {first} is already formatted; --ignore-formatted leaves it as it is")
        if options.no_initial_controllers or config.voters:
            if options.standalone or options.initial_controllers:
                raise FormatError(
                    "controller.quorum.voters is set: the quorum is static and has no initial controllers"
                )
            voters = None
        elif options.initial_controllers:
            voters = parse_initial_controllers(options.initial_controllers, config.controller_listener_names[0])
        else:
            voters = [formatter.standalone_voter()] if config.is_controller else None
        done = formatter.format(known or formatter.new_id_text(), voters)
    except (FormatError, OSError) as error:
        print(f"pylogd: {error}", file=sys.stderr)
        return EXIT_FAILURE
    for path in done.formatted:
        print(f"formatted {path} for node {config.node_id} of cluster {done.cluster_id}")
    if not done.formatted:
        print("all log directories are already formatted")
    return EXIT_FAILURE if done.failed else 0


if __name__ == "__main__":
    main()
