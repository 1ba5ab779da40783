"""Which cluster a client is for, and settings of the library, as flags."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from controller.local.cluster_file import ClusterError, read_cluster
from controller.local.load.client import LoadError


def add_cluster(parser: argparse.ArgumentParser) -> None:
    """The flag --bootstrap-server."""
    parser.add_argument("--bootstrap-server", metavar="H:P[,H:P]", help="default: the cluster of the data folder")


def cluster_of(options: argparse.Namespace) -> str:
    """The brokers that are meant. Raises: LoadError."""
    if options.bootstrap_server is not None:
        return str(options.bootstrap_server)
    try:
        return read_cluster(options.data).bootstrap
    except ClusterError as error:
        raise LoadError(f"{error}; or name a cluster with --bootstrap-server") from error


def properties(given: Sequence[str]) -> dict[str, str]:
    """`name=value` as a mapping. Raises: ValueError."""
    pairs = [text.partition("=") for text in given]
    for text, (name, equals, _) in zip(given, pairs, strict=True):
        if not name or not equals:
            raise ValueError(f"{text!r}: expected NAME=VALUE")
    return {name: value for name, _, value in pairs}
