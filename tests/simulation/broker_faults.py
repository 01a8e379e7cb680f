"""What happens to the machines, processes, disks and network of a simulated cluster."""

from __future__ import annotations

from typing import Any

from pylogd.runtime.simulated.simulated_loop import SimulatedLoop


class Faults:
    def __init__(self, simulation: Any) -> None:
        self._simulation = simulation
        self._world = simulation.world

    def restart_later(self, host: Any) -> None:
        delay_s = self._world.chance.choice((0.05, 0.5, 2.0, 6.0)) * (0.5 + self._world.chance.random())
        self._world.after(delay_s, lambda: None if host.alive else host.start())

    def strike(self) -> None:
        if not self._simulation.faulty:
            return
        chance = self._world.chance
        self._world.after(0.3 + chance.random() * 5.0, self.strike)
        host = chance.choice(list(self._simulation.hosts.values()))
        others = [other for other in self._simulation.hosts.values() if other is not host]
        kinds = ["kill", "kill", "stop", "cut", "cut", "break", "slow", "leave"]
        if self._simulation.durable:
            kinds += ["power", "crash", "crash"]
        if self._simulation.wiping:
            kinds += ["wipe", "wipe", "wipe"]
        kind = chance.choice(kinds)
        if not host.alive or host.loop.stopped:
            return
        if kind == "kill":
            host.kill()
            self.restart_later(host)
        elif kind == "power":
            host.lose_power()
            self.restart_later(host)
        elif kind == "wipe":
            # Only from a cluster that can spare it: nobody promises to survive the loss of two.
            if self._simulation.is_whole():
                host.lose_disk()
                self.restart_later(host)
        elif kind == "crash":
            host.files.crash_at = host.files.steps + chance.randint(1, 60)
        elif kind == "leave":
            host.leave()
            self._world.after(10.0, lambda: None if host.alive else host.start())
        elif kind == "stop":
            self._simulation.note(f"{host} is stopped")
            loop = host.loop
            loop.stop_process()
            self._world.after(chance.choice((0.5, 2.0, 6.0)), lambda: self.continue_(loop))
        elif kind == "cut":
            if chance.random() < 0.5:
                sides = [[host.name], [other.name for other in others] + ["clients"]]
            else:
                # The brokers do not see each other; clients see all of them.
                sides = [[host.name], [other.name for other in others]]
            self._simulation.note(f"the network is cut: {sides}")
            self._simulation.internet.cut(sides)
            if chance.random() < 0.3:
                host.network.break_connections(others[0].name)
            self._world.after(chance.choice((0.5, 2.0, 5.0, 8.0)), self.mend)
        elif kind == "break":
            self._simulation.note(f"connections of {host} break")
            for name in [other.name for other in others] + ["clients"]:
                if chance.random() < 0.7:
                    host.network.break_connections(name)
        else:
            slowness = chance.choice((5.0, 50.0, 200.0))
            self._simulation.note(f"the disk of {host} gets {slowness} times slower")
            host.workers.slowness = slowness
            workers = host.workers
            self._world.after(chance.random() * 6.0, lambda: setattr(workers, "slowness", 1.0))

    def continue_(self, loop: SimulatedLoop) -> None:
        if not loop.dead:
            self._simulation.note(f"{loop.name} is continued")
            loop.continue_process()

    def mend(self) -> None:
        self._simulation.note("the network is mended")
        self._simulation.internet.mend()
