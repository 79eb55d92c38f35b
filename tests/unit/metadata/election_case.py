"""One partition with the brokers of its replicas: plays elections in the order in which the controller makes them.

Inputs of a transcript, one a line, and the brokers that they concern:

    replicas 1 2 3 [min=2] [no-elr] [unclean=true]   a new partition, with min.insync.replicas and settings
    fence N / live N          the broker loses its sign of life / gets one
    stop N                    the broker requests a shutdown: it leaves the ISRs; `live N` ends it
    disk-fails N / disk-back N
    restart N clean|unclean   the broker registers again, before it is live
    restart N replaced        the same, with an empty log directory instead of the assigned one
    leave N / join N          the leader proposes an ISR without or with a replica
    min N                     min.insync.replicas changes; 0 turns eligible leader replicas off
    preferred / unclean       ElectLeaders of type 0 or 1
"""

from ottla.metadata.changes.elections import (
    ElectionRules,
    online,
    preferred,
    replaced,
    restarted,
    unclean,
    with_isr,
    with_min_isr,
    without,
)
from ottla.metadata.image import NO_LEADER, PartitionImage


class ElectionCase:
    """A partition, its rules, and the condition of its brokers."""

    def __init__(self, replicas: tuple[int, ...], rules: ElectionRules) -> None:
        self.rules = rules
        self.partition = PartitionImage.new(replicas, rules.min_isr)
        self.live = set(replicas)
        self.stopping: set[int] = set()
        self.restarting = NO_LEADER

    def acceptable(self, node: int) -> bool:
        """Return True for a broker that may lead."""
        return (
            node in self.live
            and node not in self.stopping
            and node not in self.partition.offline
            and node != self.restarting
        )

    # -- inputs --

    def fence(self, node: int) -> None:
        self.live.discard(node)
        self.stopping.discard(node)
        self.settle()

    def live_again(self, node: int) -> None:
        self.live.add(node)
        self.stopping.discard(node)
        self.settle()

    def stop(self, node: int) -> None:
        self.stopping.add(node)
        self.settle()

    def fail_disk(self, node: int) -> None:
        self._put(self.partition._replace(offline=(*self.partition.offline, node), epoch=self.partition.epoch + 1))
        self._put(without(self.partition, node, self.acceptable, self.rules, has_records=False))
        self.settle()

    def restore_disk(self, node: int) -> None:
        offline = tuple(other for other in self.partition.offline if other != node)
        self._put(self.partition._replace(offline=offline, epoch=self.partition.epoch + 1))
        self.settle()

    def restart(self, node: int, *, was_clean: bool, is_replaced: bool = False) -> None:
        """Register a broker again; it is not live yet."""
        self.live.discard(node)
        self.stopping.discard(node)
        self.restarting = node
        before = self.partition
        state = replaced(before, node, self.acceptable) if is_replaced else None
        self._put(state or restarted(before, node, self.acceptable, was_clean=was_clean))
        self.restarting = NO_LEADER

    def leave(self, node: int) -> None:
        """Take a replica out of the ISR that lags behind."""
        self._put(without(self.partition, node, self.acceptable, self.rules))

    def join(self, node: int) -> None:
        """Add a replica to the ISR that has caught up: the ELR is emptied when the ISR has min.insync.replicas."""
        before = self.partition
        isr = tuple(replica for replica in before.replicas if replica in (*before.isr, node))
        self._put(with_isr(before, isr)._replace(epoch=before.epoch + 1))

    def change_min_isr(self, min_isr: int) -> None:
        """Put another min.insync.replicas in force, as the leader does."""
        self.rules = self.rules._replace(min_isr=min_isr)
        self._put(with_min_isr(self.partition, min_isr)._replace(epoch=self.partition.epoch + 1))
        self.settle()

    def settle(self) -> None:
        """Act as the controller does: fenced and stopping brokers leave the ISR, then a leader is elected if needed."""
        for node in self.partition.isr:
            if node not in self.live or node in self.stopping:
                self._put(without(self.partition, node, self.acceptable, self.rules))
        self._put(online(self.partition, self.acceptable, self.rules))

    def _put(self, state: PartitionImage | None) -> None:
        if state is None:
            return
        before = self.partition
        if state.leader != before.leader and state.leader in before.replaced and state.leader not in before.isr:
            kept = [node for node in state.replicas if node not in before.replaced and self.acceptable(node)]
            assert not kept, f"{state.leader} has an empty log, and {kept} have not: {before} -> {state}"
        self.partition = state

    # -- transcripts --

    @classmethod
    def parsed(cls, line: str) -> "ElectionCase":
        """Begin with a line such as `replicas 1 2 3 min=2`."""
        words = line.split()[1:]
        settings = dict(word.split("=") for word in words if "=" in word)
        min_isr = 0 if "no-elr" in words else int(settings.get("min", 1))
        rules = ElectionRules(min_isr, settings.get("unclean") == "true")
        return cls(tuple(int(word) for word in words if word.isdigit()), rules)

    def play(self, line: str) -> None:
        """Play one input."""
        command, *words = line.split()
        if command in ("preferred", "unclean"):
            self._put((preferred if command == "preferred" else unclean)(self.partition, self.acceptable))
        elif command == "restart":
            self.restart(int(words[0]), was_clean=words[1] == "clean", is_replaced=words[1] == "replaced")
        else:
            actions = {
                "fence": self.fence,
                "live": self.live_again,
                "stop": self.stop,
                "disk-fails": self.fail_disk,
                "disk-back": self.restore_disk,
                "leave": self.leave,
                "join": self.join,
                "min": self.change_min_isr,
            }
            actions[command](int(words[0]))

    def described(self) -> str:
        """Return the state in one line."""
        one = self.partition
        parts = [
            f"leader {one.leader}" if one.leader != NO_LEADER else "no leader",
            f"epoch {one.leader_epoch}",
            f"isr {_nodes(one.isr)}",
        ]
        if one.elr:
            parts.append(f"elr {_nodes(one.elr)}")
        if one.last_known_leader != NO_LEADER:
            parts.append(f"last known leader {one.last_known_leader}")
        if one.offline:
            parts.append(f"offline {_nodes(one.offline)}")
        if one.replaced:
            parts.append(f"replaced {_nodes(one.replaced)}")
        if one.is_recovering:
            parts.append("recovering")
        return ", ".join(parts)


def _nodes(nodes: tuple[int, ...]) -> str:
    return " ".join(map(str, nodes)) or "empty"
