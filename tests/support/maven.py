"""Resolves Maven artifacts into the cache: with `mvn`, or with the Ivy jar that the PySpark wheel carries."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import shutil
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from support.paths import cache_lock


@dataclass(frozen=True)
class Artifact:
    group: str
    name: str
    version: str
    transitive: bool = True


class ResolutionError(Exception):
    pass


def resolve(label: str, artifacts: Iterable[Artifact], java: str) -> list[Path]:
    """The jars of a class path. The answer is kept in the cache until the list of artifacts changes."""
    wanted = tuple(artifacts)
    digest = hashlib.sha256(repr(wanted).encode()).hexdigest()[:12]
    with cache_lock(f"{label}-{digest}") as folder:
        answer = folder / "classpath.txt"
        if answer.exists():
            jars = [Path(entry) for entry in answer.read_text().strip().split(os.pathsep)]
            if all(jar.exists() for jar in jars):
                return jars
        partial = folder / "classpath.partial"
        if mvn := shutil.which("mvn"):
            _with_maven(mvn, wanted, folder, partial)
        elif ivy := ivy_jar():
            _with_ivy(java, ivy, wanted, folder, partial)
        else:
            raise ResolutionError("neither Maven nor PySpark's Ivy jar was found to resolve Kafka's jars")
        partial.rename(answer)
        return [Path(entry) for entry in answer.read_text().strip().split(os.pathsep)]


def ivy_jar() -> Path | None:
    spec = importlib.util.find_spec("pyspark")
    if spec is None or spec.origin is None:
        return None
    jars = sorted((Path(spec.origin).parent / "jars").glob("ivy-*.jar"))
    return jars[-1] if jars else None


def _with_maven(mvn: str, artifacts: tuple[Artifact, ...], folder: Path, output: Path) -> None:
    everything = "<exclusions><exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion></exclusions>"
    dependencies = "".join(
        f"<dependency><groupId>{a.group}</groupId><artifactId>{a.name}</artifactId><version>{a.version}</version>"
        f"{'' if a.transitive else everything}</dependency>"
        for a in artifacts
    )
    pom = folder / "pom.xml"
    pom.write_text(
        '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>'
        "<groupId>pylogd.tests</groupId><artifactId>classpath</artifactId><version>1</version>"
        f"<dependencies>{dependencies}</dependencies></project>"
    )
    goal = [mvn, "-q", "-B", "-f", str(pom), "dependency:build-classpath", f"-Dmdep.outputFile={output}"]
    _run(goal, folder, output)


def _with_ivy(java: str, ivy: Path, artifacts: tuple[Artifact, ...], folder: Path, output: Path) -> None:
    dependencies = "".join(
        f'<dependency org="{a.group}" name="{a.name}" rev="{a.version}" conf="default->default" '
        f'transitive="{str(a.transitive).lower()}"/>'
        for a in artifacts
    )
    module = folder / "ivy.xml"
    module.write_text(
        '<ivy-module version="2.0"><info organisation="pylogd.tests" module="classpath"/>'
        '<configurations><conf name="default"/></configurations>'
        f"<dependencies>{dependencies}</dependencies></ivy-module>"
    )
    settings = folder / "ivysettings.xml"
    settings.write_text(
        '<ivysettings><settings defaultResolver="central"/>'
        '<resolvers><ibiblio name="central" m2compatible="true"/></resolvers></ivysettings>'
    )
    # Without the two type filters Ivy's cache path would list source jars and poms' bundles differently from Maven's.
    command = [java, f"-Duser.home={folder}", "-jar", str(ivy), "-ivy", str(module), "-settings", str(settings)]
    command += ["-cache", str(folder / "ivy"), "-confs", "default", "-types", "jar", "bundle", "maven-plugin"]
    command += ["-cachepath", str(output)]
    _run(command, folder, output)


def _run(command: list[str], folder: Path, output: Path) -> None:
    done = subprocess.run(command, cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=900)
    if done.returncode != 0 or not output.exists():
        raise ResolutionError(f"{command[0]} could not resolve the class path:\n{(done.stdout + done.stderr)[-4000:]}")
