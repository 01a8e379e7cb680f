"""What the operating system knows about a broker process: CPU time, resident memory, and which cores it may use.

Everything is read from /proc, so the broker under test is not asked to measure itself.
"""

from __future__ import annotations

import os
import platform
from pathlib import Path

TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")


def _stat_fields(pid: int) -> list[str]:
    """The fields of /proc/PID/stat after the command name, which may itself hold spaces: [0] is the state."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()


def descendants(pid: int) -> list[int]:
    """The process and all live processes below it."""
    found = [pid]
    for task in Path(f"/proc/{pid}/task").iterdir():
        try:
            children = (task / "children").read_text().split()
        except FileNotFoundError:  # a thread that ended meanwhile
            continue
        for child in children:
            found += descendants(int(child))
    return found


def cpu_seconds(pid: int) -> float:
    """User and system time of the process, its ended and reaped children, and its live descendants.

    Live threads are summed from schedstat, which counts nanoseconds; the clock ticks of /proc/PID/stat (10 ms) would be
    coarser than some rows are long. Threads that ended are only in the ticks, so the larger of both is taken.
    """
    total = 0.0
    for each in descendants(pid):
        fields = _stat_fields(each)
        own, reaped = int(fields[11]) + int(fields[12]), int(fields[13]) + int(fields[14])
        precise_ns = 0
        for task in Path(f"/proc/{each}/task").iterdir():
            try:
                precise_ns += int((task / "schedstat").read_text().split()[0])
            except FileNotFoundError:
                continue
        total += max(own / TICKS_PER_SECOND, precise_ns / 1e9) + reaped / TICKS_PER_SECOND
    return total


def resident_mb(pid: int) -> float:
    """Resident memory of the process and its descendants, in MB (10**6 bytes)."""
    total_kib = 0
    for each in descendants(pid):
        for line in Path(f"/proc/{each}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                total_kib += int(line.split()[1])
    return total_kib * 1024 / 1e6


def pin(pid: int, cores: set[int]) -> None:
    """Restricts every thread of a running process; threads it starts later inherit from the one that starts them."""
    for task in Path(f"/proc/{pid}/task").iterdir():
        try:
            os.sched_setaffinity(int(task.name), cores)
        except ProcessLookupError:
            continue


def all_cores() -> set[int]:
    return set(os.sched_getaffinity(0))


def broker_cores() -> set[int]:
    """The first core, when there are at least two: the load gets the rest."""
    cores = sorted(all_cores())
    return set(cores[:1])


def load_cores() -> set[int]:
    cores = sorted(all_cores())
    return set(cores[1:]) or set(cores)


def describe() -> str:
    model = "unknown processor"
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            model = line.partition(":")[2].strip()
            break
    memory_gb = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9
    return (
        f"{os.cpu_count()} x {model}, {memory_gb:.0f} GB, {platform.system()} {platform.release()}, "
        f"Python {platform.python_version()}, load average {os.getloadavg()[0]:.2f}"
    )
