"""What to type next, as it is written for this cluster. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from controller.admin.why.facts import BrokerFacts
from controller.wire.types import BrokerId


@dataclass(frozen=True, slots=True, kw_only=True)
class Commands:
    """How commands are written for this cluster: `kwob` knows a local cluster's brokers, others are started by hand."""

    bootstrap: str
    local: bool = False
    #: What names the cluster's folder, behind a blank; nothing for the default one.
    data: str = ""
    zookeeper: str = "H:P"

    def tool(self, name: str, words: str) -> str:
        """A command of one of the tools."""
        return f"kwob {name} --bootstrap-server {self.bootstrap} {words}"

    def revive(self, broker: BrokerId, facts: BrokerFacts | None) -> str:
        """How a broker comes back: by the end of what has it down, by `kwob up`, or where it was started.

        A process of `kwob up` that runs and does not answer is ended first. A broker that faults have left no log
        directory comes back with their end where its process runs on for others; else its process has ended.
        """
        halted_by = facts.halted_by if facts is not None and self.local else ()
        if facts is not None and facts.fault_ids and facts.faults and not halted_by:
            return f"kwob fault clear {facts.fault_ids[0]}{self.data}"
        if self.local and facts is not None and facts.local is not None:
            start = f"kwob broker start {broker}{self.data}"
            if halted_by:
                clear = f"kwob fault clear {' '.join(halted_by)}{self.data}"
                return clear if facts.local else f"{clear} && {start}"
            return f"kwob broker kill {broker}{self.data} && {start}" if facts.local else start
        if self.local:
            return (
                f"start broker {broker} where it was started (kwob up here has none of that id): kwob broker run "
                f"--broker-id {broker} --zookeeper {self.zookeeper} --listener H:P --log-dirs DIR"
            )
        return f"start broker {broker} again (its log says why it ended)"
