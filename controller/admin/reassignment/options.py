"""The options of kafka-reassign-partitions and what goes together. Source: spec admin.md §3.1 [3.9]."""

from __future__ import annotations

from typing import Final

from controller.admin.toolkit.options import COMMAND_CONFIG, Arguments, Option, OptionTable, UsageExit
from controller.admin.toolkit.texts import Texts

ACTIONS: Final = ("generate", "execute", "verify", "cancel", "list")
_SERVER: Final = ("bootstrap-server", "command-config")
_OWN: Final = ("json",)
_REQUIRED: Final = {
    "verify": ("reassignment-json-file",),
    "generate": ("topics-to-move-json-file", "broker-list"),
    "execute": ("reassignment-json-file",),
    "cancel": ("reassignment-json-file",),
    "list": (),
}
_PERMITTED: Final = {
    "verify": ("preserve-throttles", "progress"),
    "generate": ("disable-rack-aware", "strategy"),
    "execute": (
        "additional",
        "throttle",
        "replica-alter-log-dirs-throttle",
        "timeout",
        "progress",
        "rollback-json-file",
        "dry-run",
    ),
    "cancel": ("preserve-throttles", "timeout"),
    "list": ("progress",),
}
STRATEGIES: Final = ("kafka", "minimal")

TABLE: Final = OptionTable(
    "This tool helps to move topic partitions between replicas.",
    [
        Option(
            name="bootstrap-server", argument="Server(s) to use for bootstrapping", help="REQUIRED: brokers to ask."
        ),
        COMMAND_CONFIG,
        Option(name="generate", help="Print a reassignment of topics to brokers. Changes nothing."),
        Option(name="execute", help="Start the reassignment of a file."),
        Option(
            name="verify",
            help="Say how far the reassignment of a file is. Removes throttles once nothing is being reassigned.",
        ),
        Option(name="cancel", help="Cancel the running reassignments that a file names."),
        Option(name="list", help="List all running reassignments."),
        Option(
            name="reassignment-json-file",
            argument="manual assignment json file path",
            help='The file: {"partitions":[{"topic":"foo","partition":1,"replicas":[1,2,3],'
            '"log_dirs":["any","/data","any"]}],"version":1}. log_dirs is optional, as long as replicas, and holds '
            'absolute paths or "any".',
        ),
        Option(
            name="topics-to-move-json-file",
            argument="topics to reassign json file path",
            help='The topics for --generate: {"topics":[{"topic":"foo"},{"topic":"foo1"}],"version":1}.',
        ),
        Option(name="broker-list", argument="brokerlist", help="The brokers for --generate: 0,1,2."),
        Option(name="disable-rack-aware", help="For --generate: leave racks out of account."),
        Option(
            name="throttle",
            argument="throttle",
            type="Long",
            default="-1",
            help="Limit of data moved between brokers, in bytes per second and broker. With --additional it may be "
            "changed while a reassignment runs.",
        ),
        Option(
            name="replica-alter-log-dirs-throttle",
            argument="replicaAlterLogDirsThrottle",
            type="Long",
            default="-1",
            help="Limit of data moved between log dirs of a broker, in bytes per second.",
        ),
        Option(
            name="timeout",
            argument="timeout",
            type="Long",
            default="10000",
            help="Milliseconds to wait for moves between log dirs to begin.",
        ),
        Option(name="additional", help="Start this reassignment although others are running."),
        Option(name="preserve-throttles", help="Leave the throttles of brokers and topics as they are."),
        Option(
            name="rollback-json-file",
            argument="path",
            help="With --execute: also save the present assignment there, for the way back. The file must not exist.",
        ),
        Option(
            name="progress",
            help="kwob's own: with --execute, --verify or --list, show bytes copied, rate and what is waited for until "
            "the reassignment is done. Ctrl-C ends the view only.",
        ),
        Option(
            name="dry-run",
            help="kwob's own: say what --execute would do (bytes per broker and link, leaders moved, peak of each log "
            "dir, steps of the controller) and change nothing.",
        ),
        Option(
            name="strategy",
            argument="kafka|minimal",
            default="kafka",
            help="kwob's own, for --generate: kafka places all partitions anew; minimal moves as few replicas as can "
            "be and is as even.",
        ),
    ],
)


def check(texts: Texts, args: Arguments) -> None:
    """Raises UsageExit for the first thing that does not go together."""
    actions = [name for name in ACTIONS if args.has(name)]
    if len(actions) != 1:
        raise UsageExit("Command must include exactly one action: --generate, --execute, --verify, --cancel, --list")
    action = actions[0]
    if not args.has("bootstrap-server"):
        raise UsageExit(texts.no_server)
    args.require(*_REQUIRED[action])
    permitted = {action, *_SERVER, *_OWN, *_REQUIRED[action], *_PERMITTED[action]}
    for name in args.names:
        if name not in permitted:
            raise UsageExit(f'Option "[{name}]" can\'t be used with action "[{action}]"')
    if args.value("strategy") not in STRATEGIES:
        raise UsageExit(f"--strategy {args.value('strategy')}: must be one of {', '.join(STRATEGIES)}")
