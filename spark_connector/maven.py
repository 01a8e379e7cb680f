"""Resolves Maven artifacts into a cache folder: with `mvn`, or with the Ivy jar that PySpark carries."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import shutil
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from xml.sax.saxutils import quoteattr

from pylogd.spark_connector.cache import cache_directory, locked

TIMEOUT_S = 900


@dataclass(frozen=True)
class Artifact:
    """`without` names modules that are not wanted, wherever in the tree of dependencies they are."""

    group: str
    name: str
    version: str
    without: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.group}:{self.name}:{self.version}"


class ResolutionError(Exception):
    """What the tools said when they could not get an artifact."""


def resolve(
    label: str, artifacts: Iterable[Artifact], java: Path, *, cache: Path | None = None, copy: bool = False
) -> list[Path]:
    """The jars of a class path, kept until the list of artifacts changes; `copy` keeps the files too."""
    wanted = tuple(artifacts)
    digest = hashlib.sha256(repr(wanted).encode()).hexdigest()[:12]
    with locked((cache or cache_directory()) / f"{label}-{digest}") as folder:
        answer = folder / "classpath.txt"
        if answer.exists():
            jars = _entries(answer)
            if all(jar.exists() for jar in jars):
                return jars
        jars = _resolved(wanted, java, folder)
        if copy:
            jars = [_copied(jar, folder / "jars") for jar in jars]
        partial = folder / "classpath.partial"
        partial.write_text(os.pathsep.join(map(str, jars)))
        partial.rename(answer)
        return jars


def _resolved(artifacts: tuple[Artifact, ...], java: Path, folder: Path) -> list[Path]:
    """Maven goes first: it knows the user's mirrors and what is on this machine already."""
    failures = []
    output = folder / "resolved.txt"
    output.unlink(missing_ok=True)
    mvn, ivy = shutil.which("mvn"), ivy_jar()
    if mvn is None and ivy is None:
        raise ResolutionError("neither Maven (mvn) nor PySpark's Ivy jar was found to download jars with")
    commands = {} if mvn is None else {"Maven": _maven(mvn, artifacts, folder, output)}
    if ivy is not None:
        commands["Ivy"] = _ivy(java, ivy, artifacts, folder, output)
    for name, command in commands.items():
        try:
            done = subprocess.run(
                command, cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=TIMEOUT_S
            )
        except subprocess.TimeoutExpired:
            failures.append(f"{name} did not end within {TIMEOUT_S} s")
            continue
        if done.returncode == 0 and output.exists():
            return _entries(output)
        failures.append(f"{name} ended with {done.returncode}:\n{(done.stdout + done.stderr)[-3000:].strip()}")
    raise ResolutionError("\n".join(failures))


def _entries(path: Path) -> list[Path]:
    return [Path(entry) for entry in path.read_text().strip().split(os.pathsep)]


def _copied(jar: Path, folder: Path) -> Path:
    folder.mkdir(exist_ok=True)
    return Path(shutil.copy2(jar, folder / jar.name))


def ivy_jar() -> Path | None:
    """The Ivy inside the installed PySpark."""
    spec = importlib.util.find_spec("pyspark")
    if spec is None or spec.origin is None:
        return None
    jars = sorted((Path(spec.origin).parent / "jars").glob("ivy-*.jar"))
    return jars[-1] if jars else None


def _maven(mvn: str, artifacts: tuple[Artifact, ...], folder: Path, output: Path) -> list[str]:
    def exclusions(names: tuple[str, ...]) -> str:
        each = (f"<exclusion><groupId>*</groupId><artifactId>{name}</artifactId></exclusion>" for name in names)
        return f"<exclusions>{''.join(each)}</exclusions>"

    dependencies = "".join(
        f"<dependency><groupId>{a.group}</groupId><artifactId>{a.name}</artifactId><version>{a.version}</version>"
        f"{exclusions(a.without)}</dependency>"
        for a in artifacts
    )
    pom = folder / "pom.xml"
    pom.write_text(
        '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>'
        "<groupId>pylogd</groupId><artifactId>classpath</artifactId><version>1</version>"
        f"<dependencies>{dependencies}</dependencies></project>"
    )
    return [mvn, "-q", "-B", "-f", str(pom), "dependency:build-classpath", f"-Dmdep.outputFile={output}"]


def _ivy(java: Path, ivy: Path, artifacts: tuple[Artifact, ...], folder: Path, output: Path) -> list[str]:
    def exclusions(names: tuple[str, ...]) -> str:
        return "".join(f"<exclude module={quoteattr(name)}/>" for name in names)

    dependencies = "".join(
        f'<dependency org="{a.group}" name="{a.name}" rev="{a.version}" conf="default->default">'
        f"{exclusions(a.without)}</dependency>"
        for a in artifacts
    )
    module = folder / "ivy.xml"
    module.write_text(
        '<ivy-module version="2.0"><info organisation="pylogd" module="classpath"/>'
        '<configurations><conf name="default"/></configurations>'
        f"<dependencies>{dependencies}</dependencies></ivy-module>"
    )
    settings = folder / "ivysettings.xml"
    settings.write_text(
        '<ivysettings><settings defaultResolver="central"/>'
        '<resolvers><ibiblio name="central" m2compatible="true"/></resolvers></ivysettings>'
    )
    # A home of its own: Ivy would take what an interrupted Maven left in the user's repository for whole.
    command = [str(java), f"-Duser.home={folder}", "-jar", str(ivy), "-ivy", str(module), "-settings", str(settings)]
    # Without the types Ivy's answer would list sources beside the jars.
    command += ["-cache", str(folder / "ivy"), "-confs", "default", "-types", "jar", "bundle", "maven-plugin"]
    return [*command, "-cachepath", str(output)]
