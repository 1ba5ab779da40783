"""The options of kafka-reassign-partitions 2.0 and 2.6. Source: spec admin.md §3.1."""

from __future__ import annotations

from typing import Final

from controller.admin.cluster.failures import ToolFailure
from controller.admin.reassignment.options import STRATEGIES, TABLE
from controller.admin.toolkit.options import Arguments, Option, OptionTable, UsageExit
from controller.admin.toolkit.texts import Texts

DESCRIPTION_20: Final = "This command moves topic partitions between replicas."
ACTIONS: Final[tuple[str, ...]] = ("generate", "execute", "verify")
_ACTIONS_26: Final = (*ACTIONS, "cancel", "list")
#: What 2.6 could do only through brokers, in the order in which it looked.
_BY_BROKER: Final = ("additional", "cancel", "command-config", "replica-alter-log-dirs-throttle", "list", "timeout")
_SERVER: Final = ("bootstrap-server", "command-config", "json")
#: kwob's own options, which ask brokers.
_OWN: Final = {
    "verify": ("progress",),
    "generate": ("strategy",),
    "execute": ("progress", "rollback-json-file", "dry-run"),
    "cancel": (),
    "list": ("progress",),
}
_PERMITTED_26: Final = {
    "verify": ("zookeeper", "reassignment-json-file", "preserve-throttles"),
    "generate": ("zookeeper", "topics-to-move-json-file", "broker-list", "disable-rack-aware"),
    "execute": (
        "zookeeper",
        "reassignment-json-file",
        "additional",
        "throttle",
        "replica-alter-log-dirs-throttle",
        "timeout",
    ),
    "cancel": ("reassignment-json-file", "preserve-throttles", "timeout"),
    "list": (),
}
_REQUIRED_26: Final = {
    "verify": ("reassignment-json-file",),
    "generate": ("topics-to-move-json-file", "broker-list"),
    "execute": ("reassignment-json-file",),
    "cancel": ("reassignment-json-file",),
    "list": (),
}
_CONFLICTS_20: Final = {
    "verify": (
        "throttle",
        "replica-alter-log-dirs-throttle",
        "topics-to-move-json-file",
        "disable-rack-aware",
        "broker-list",
    ),
    "generate": ("throttle", "replica-alter-log-dirs-throttle", "reassignment-json-file"),
    "execute": ("topics-to-move-json-file", "disable-rack-aware", "broker-list"),
}


def table(texts: Texts) -> OptionTable:
    """The options of a version."""
    flags = ACTIONS
    valued: tuple[str, ...] = ("topics-to-move-json-file", "reassignment-json-file", "broker-list", "bootstrap-server")
    description = DESCRIPTION_20
    if texts.asks_brokers:
        flags = (*_ACTIONS_26, "additional", "preserve-throttles", "progress", "dry-run")
        valued = (*valued, "command-config", "rollback-json-file", "strategy")
        description = TABLE.description
    options = [
        Option(name="zookeeper", argument="urls", help="host:port[,host:port...][/chroot]"),
        *(Option(name=name, help="As in the tool of today.") for name in (*flags, "disable-rack-aware")),
        *(Option(name=name, argument=name, help="As in the tool of today.") for name in valued),
        *(
            Option(name=name, argument=name, type="Long", default="-1", help="Bytes per second.")
            for name in ("throttle", "replica-alter-log-dirs-throttle")
        ),
        Option(name="timeout", argument="timeout", type="Long", default="10000", help="Milliseconds."),
    ]
    return OptionTable(description, options, version=texts.asks_brokers)


def check(texts: Texts, args: Arguments) -> None:
    """Raises UsageExit, ToolFailure for the first thing that does not go together."""
    (_check_26 if texts.asks_brokers else _check_20)(args)


def _check_20(args: Arguments) -> None:
    if args.count(ACTIONS) != 1:
        raise UsageExit("Command must include exactly one action: --generate, --execute or --verify")
    args.require("zookeeper")
    if args.has("verify") and not args.has("reassignment-json-file"):
        raise UsageExit(
            "If --verify option is used, command must include --reassignment-json-file that was used during the "
            "--execute option"
        )
    if args.has("generate") and not (args.has("topics-to-move-json-file") and args.has("broker-list")):
        raise UsageExit(
            "If --generate option is used, command must include both --topics-to-move-json-file and --broker-list "
            "options"
        )
    if args.has("execute") and not args.has("reassignment-json-file"):
        raise UsageExit(
            "If --execute option is used, command must include --reassignment-json-file that was output during the "
            "--generate option"
        )
    for action, others in _CONFLICTS_20.items():
        args.refuse_with(action, *others)


def _check_26(args: Arguments) -> None:
    actions = [name for name in _ACTIONS_26 if args.has(name)]
    if len(actions) != 1:
        raise UsageExit("Command must include exactly one action: --generate, --execute, --verify, --cancel, --list")
    [action] = actions
    if not args.count(("zookeeper", "bootstrap-server")):
        raise UsageExit("Please specify --bootstrap-server")
    args.require(*_REQUIRED_26[action])
    permitted = {action, *_SERVER, *_REQUIRED_26[action], *_PERMITTED_26[action], *_OWN[action]}
    for name in args.names:
        if name not in permitted:
            raise UsageExit(f'Option "[{name}]" can\'t be used with action "[{action}]"')
    if args.has("strategy") and args.value("strategy") not in STRATEGIES:
        raise UsageExit(f"--strategy {args.value('strategy')}: must be one of {', '.join(STRATEGIES)}")
    if args.has("bootstrap-server"):
        return
    for name in (*_BY_BROKER, *_OWN[action]):
        if args.has(name):
            raise ToolFailure(f'You must specify --bootstrap-server when using "[{name}]"')
